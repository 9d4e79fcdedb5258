// Package daemon lets the one process that holds a repository run the commands of others: a server
// answers on a unix socket in the repository's directory, and a client hands it a command line with
// its standard streams.
//
// The socket lies in a directory of mode 0700 and has mode 0600 itself, and the server asks the
// system for the user at the other end: any other user is turned away before a byte is read. The
// socket of a server that was killed is removed by the next one, which holds the repository's lock.
//
// The protocol is HTTP/2 in clear text, which brings flow control, cancellation, and the notice
// that a client is gone. A connection carries one command:
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
// A change of the protocol changes the number in the paths. When a client goes away, the context of
// its command ends. A client that takes nothing holds up a server that stops for two seconds.
//
// The package imports internal/base and golang.org/x/sys/unix. It knows no commands: those are the
// Handler's. It may change with any release.
package daemon
