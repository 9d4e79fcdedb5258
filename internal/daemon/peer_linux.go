package daemon

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peersKnown says that the system tells who is at the other end of a socket.
const peersKnown = true

// samePeer reports whether the process at the other end runs as the user that this one runs as.
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
