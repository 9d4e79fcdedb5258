// Package dir is a bucket in a directory: for trying out, for a disk that is carried about or a
// share of the network, and for tests.
//
// # How a put is atomic and durable
//
// The content goes to a new file in "partial" and is synced. Then link(2) gives it the name of the
// object, which fails when the name is taken, whoever is first, in one process or in many. Then the
// directories from that of the object up to the root are synced, and the name in "partial" is
// removed. A reader sees a whole object or none. A kill leaves a file in "partial" at most; Open
// removes those that are older than a day. An object that was found to exist is made durable too
// before ErrExists is returned, so that nobody builds on what a power cut takes.
//
// On Linux, objects of a MiB and more are written past the page cache, as far as the file system
// can.
//
// Some file systems have no links (FAT, exFAT, some shares). There a put creates the file of the
// object's name with the suffix "!" in place of "=", exclusively, as a claim; whoever holds the
// claim looks whether the object exists, renames its file to the object's name, and removes the
// claim. A put that finds a claim fails with ClassBusy. A kill between may leave a claim, which
// keeps the name busy until a put a day later removes it: put-if-absent then rests on no program
// sleeping for a day between two system calls.
//
// # Names
//
// Each segment of a name but the last is a directory with the suffix "+", the last one a file with
// the suffix "="; so the names a and a/b do not meet. '.' becomes ',', for there are systems that
// treat some names with dots as devices and drop dots at the end. A segment longer than 128 bytes
// is cut into directories with the suffix "~" and a rest. No path has a dot or an absolute part,
// and all is opened through os.Root. Files that are no objects are ignored by List.
//
// # Times
//
// Created is the time of the file's last change, and ServerTime the clock of the machine. On a
// share the first is that of the server, so the two may differ; who compares ages compares creation
// times.
//
// The package imports cloudsync/bucket, internal/base and internal/clock of the module and
// golang.org/x/sys/unix, and must not import anything that knows of pages. Invariants: D1: a file
// with an object's path is complete, synced, and never changed. D2: when a put has returned nil,
// the object survives a power cut. D3: no path leads out of the root. A Bucket is safe for
// concurrent use, also by several processes. It may change with any release.
//
// # Disks that do not answer
//
// No context ends a call of the system, and that of a share whose server is gone may take for ever.
// So each call runs in a goroutine that its caller leaves half a second after his context has
// ended; it ends when the disk answers, and touches nothing of the caller's until then. When 16 are
// left so, calls fail at once, as with a network that is gone. Close waits for none of them.
package dir
