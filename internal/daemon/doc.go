// Package daemon lets the process that holds a repository run the commands of other processes. A
// server answers on a unix socket in the repository's directory; a client sends it a command line
// with its standard streams.
//
// The socket has mode 0600 in a directory of mode 0700. The server asks the system for the peer's
// user, and refuses any other user before it reads a byte. The socket of a killed server is removed
// by the next one, which holds the repository's lock.
//
// The protocol is HTTP/2 in clear text, which has flow control, cancellation, and notice of a
// client's end. A connection carries one command:
//
//	POST /4/run    the command. The header Ledger-Request has a Request as JSON in base64. The
//	               answer begins with the command; a client without an answer may run the
//	               command itself. The body of the answer is a sequence of parts: one byte for
//	               the kind, four for the length, big-endian, and that many bytes. Kind 1 is
//	               standard output, 2 is standard error, and 3, without bytes, says that the
//	               command reads standard input. Then the client sends it as the body of the
//	               request: the input of a terminal stays where it is until then. The trailer
//	               Exit-Code ends the answer.
//	POST /4/stop   ends the command of the connection, as an interrupt does
//
// A change of the protocol changes the number in the paths. When a client disconnects, the context
// of its command ends. A client that reads no output delays a stopping server by two seconds.
//
// The package imports internal/base and golang.org/x/sys/unix. The Handler defines the commands.
// The API may change with any release.
package daemon
