// Package bridge lets the packages admin, keys and rules reach the engines behind a repository that
// an app has opened. The root has only what apps need; the rest stands on the same engines, in
// packages beside the root, which see nothing of the root but its exported names.
//
// The package holds no state but the functions that the root gives to Connect, in a variable
// declaration of its own, so that they are there before any code of an importer runs. It must not
// import the root. Nobody but the root and the packages beside it, and tests, imports it. All of it
// is safe for concurrent use.
package bridge
