// Package bridge gives the packages admin, keys and rules access to the engines of a repository
// that an app has opened. The root exports only what apps need; these packages use the same engines
// and only exported names of the root.
//
// The package has no state but the functions that the root passes to Connect. The root does so in a
// variable declaration, before any code of an importer runs. The package must not import the root.
// Only the root, the packages beside it, and tests import it. All of it is safe for concurrent use.
package bridge
