package multihash

import "golang.org/x/sys/cpu"

var available = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW

// blocks16 adds so many blocks of each message to its state. Word k of the state of message i is
// state[k][i].
//
//go:noescape
func blocks16(state *[8][lanes]uint32, messages *[lanes]*byte, blocks int)
