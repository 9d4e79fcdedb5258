// Package metabasetest makes objects for tests of package metabase and of packages that use it.
//
// It imports metabase. It may change with any release.
package metabasetest
