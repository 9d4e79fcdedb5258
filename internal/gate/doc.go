// Package gate admits calls until it is closed, and lets the closer wait for the calls inside.
//
// A call enters, works with a context that ends when the gate closes, and leaves. The package
// imports only internal/base. Gates and the contexts of calls are safe for concurrent use.
package gate
