//go:build !linux && !darwin && !freebsd

package daemon

import "net"

// peersKnown reports that the system identifies the peer of a socket.
const peersKnown = false

// samePeer reports whether the peer process runs as the user of this process.
func samePeer(*net.UnixConn) bool { return false }
