// Package daemon lets the one process that holds a repository run the commands of others: a server
// answers on a unix socket in the repository's directory, and a client hands it a command line with
// its standard streams.
//
// The socket lies in a directory of mode 0700 and has mode 0600 itself, and the server asks the
// system who is at the other end: anybody but its own user is turned away before a byte is read. A
// socket whose server has ended is removed by the next one, who can tell because he holds the
// repository's lock.
//
// A connection carries one command. Both sides send frames: a kind, a length, and up to 64 KiB. The
// client begins with a Request; the server says when it begins with it, so that a client whom a
// stopping server leaves without a word may run the command himself. Standard input is sent only as
// the command reads it, a few frames ahead, so that a command that does not leaves the terminal's
// input alone, and nothing stands before an interrupt. When the client goes away, the command's
// context ends; a client who takes nothing holds up a server that stops for two seconds.
//
// The package imports internal/base and golang.org/x/sys/unix and knows no commands: those are the
// Handler's. It may change with any release.
package daemon
