// Package checkup checks a page and repairs it.
//
// A check reads every byte and recomputes what is derived. A repair makes the index anew from the
// log; of a damaged log it keeps all that is whole, and brings the rest from the cloud. Where
// nobody has a part of the newest version any more, it makes a commit of what is left. It never
// drops intact data.
//
// The package may import storage and what is below it, the names of what cloudsync keeps in a page,
// pageusage, and of internal what finds files. It knows nothing of handles and buckets: it gets
// functions. Different pages may be checked at the same time.
package checkup
