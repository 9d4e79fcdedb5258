package daemon

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peersKnown reports that the system identifies the peer of a socket.
const peersKnown = true

// samePeer reports whether the peer process runs as the user of this process.
func samePeer(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(cred.Uid) == os.Geteuid()
	})
	return err == nil && same
}
