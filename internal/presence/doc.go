// Package presence keeps, for every page of a repository, whether it is on this device, and lets
// one at a time change that.
//
// A page is in exactly one State. Absent, Away and Here are at rest: the files of the page say
// which, and nothing is in memory. In the other states somebody has the page or does something
// with it: then it has a place in the Pages of the process. One table says for each state and
// event what the next state is, and which effects lead there; see step. Who must wait, waits on
// one channel, which is closed when the state of the page changes.
//
// Pages.Open makes a handle of a page: the page is made, fetched or opened as its state wants it,
// and the handles of a page share what Host.Start returns. Pages.Drop takes a handle back; the
// last one closes the page. Pages.Take gives a page that nobody uses to one caller alone, who may
// let it leave. Pages.Fetch brings an evicted page back, Pages.Forget makes it one that was
// deleted. Pages.Where tells the state.
//
// These rules make a page be here wholly or not at all, whenever a process dies or the power fails:
//
//	A1  Where the page's directory is, the page is here and whole; a file {page}.away beside it
//	    says nothing and goes when the repository is opened.
//	A2  To leave, the file {page}.away is written first, durably; then the directory is renamed to
//	    {page}.gone-{n}, durably; only then is anything in it removed.
//	    Pages that leave at the same time do each step together, so that they share syncs.
//	A3  To come, a page is made and filled as {page}.coming, and renamed once it is whole.
//	A4  Directories of those two names are nobody's: they are removed when the repository is
//	    opened.
//
// The package knows nothing of what is in a page, nor of clouds: a Host opens, closes and fills
// pages.
package presence
