// Package gate lets calls into something until it is closed, and has the closer wait for those
// that are inside.
//
// A call enters, does its work with a context that ends when the gate closes, and leaves. The
// package imports internal/base alone. Gates and the contexts of calls are safe for concurrent use.
package gate
