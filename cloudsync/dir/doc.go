// Package dir is a bucket in a directory: for trying out, for a portable disk or a network share,
// and for tests.
//
// # How a put is atomic and durable
//
// The content goes to a new file in "partial" and is synced. Then link(2) gives it the name of the
// object, which fails if the name is taken, by the same or another process. Then the directories
// from that of the object up to the root are synced, and the name in "partial" is removed. A reader
// sees a whole object or none. A kill leaves at most a file in "partial"; Open removes those that
// are older than a day. If the object exists already, the put makes it durable before it returns
// ErrExists, so that no caller relies on an object that a power cut removes.
//
// On Linux, objects of a MiB and more are written past the page cache, as far as the file system
// can.
//
// Some file systems have no links (FAT, exFAT, some shares). There a put creates the file of the
// object's name with the suffix "!" in place of "=", exclusively, as a claim. The holder of the
// claim checks whether the object exists, renames its file to the object's name, and removes the
// claim. A put that finds a claim fails with ClassBusy. A kill in between may leave a claim, which
// keeps the name busy until a put a day later removes it. So put-if-absent there requires that no
// program sleeps for a day between two system calls.
//
// # Names
//
// Each segment of a name but the last is a directory with the suffix "+", the last one a file with
// the suffix "="; so the names a and a/b do not collide. '.' becomes ',', since some systems treat
// some names with dots as devices and drop dots at the end. A segment longer than 128 bytes is cut
// into directories with the suffix "~" and a rest. No path has a dot or an absolute part, and all
// files are opened through os.Root. List ignores files that are no objects.
//
// # Times
//
// Created is the time of the file's last change, and ServerTime the clock of the machine. On a
// share the first is that of the server, so the two may differ: compare ages by creation times.
//
// The package imports cloudsync/bucket, internal/base and internal/clock of the module and
// golang.org/x/sys/unix, and must not import packages of pages. Invariants: D1: a file with an
// object's path is complete, synced, and never changed. D2: when a put has returned nil, the object
// survives a power cut. D3: no path leads out of the root. A Bucket is safe for concurrent use,
// also by several processes. The package may change with any release.
//
// # Disks that do not answer
//
// No context ends a system call, and a call on a share without its server may block for ever. So
// each call runs in a goroutine, which the caller abandons half a second after the caller's context
// has ended. The goroutine ends when the disk answers, and uses no caller-owned memory after it was
// abandoned. When 16 are abandoned, calls fail at once, as without a network. Close waits for none
// of them.
package dir
