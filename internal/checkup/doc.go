// Package checkup checks a page and repairs it.
//
// A check reads every byte and recomputes derived data. A repair rebuilds the index from the log;
// it keeps all intact content of a damaged log, and fetches the rest from the cloud. If a part of
// the newest version is lost everywhere, it makes a commit of the remaining content. It never drops
// intact data.
//
// The package may import storage and the packages below it, the names of cloudsync's data in a
// page, pageusage, and the internal packages that find files. It does not use handles and buckets,
// but functions in its options. Different pages may be checked at the same time.
package checkup
