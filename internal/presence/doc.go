// Package presence tracks for every page of a repository whether it is on this device. One caller
// at a time can change that.
//
// A page is in exactly one State. In the resting states Absent, Away and Here, only the page's
// files record the state. In the other states a caller uses the page or works on it: then the page
// has a place in the Pages of the process. One table has, for each state and event, the next state
// and the effects on the way; see step. Waiting callers wait on one channel, which is closed when
// the state of the page changes.
//
// Pages.Open makes a handle of a page, and makes, fetches or opens the page as its state requires.
// The handles of a page share the result of Host.Start. Pages.Drop removes a handle; the last one
// closes the page. Pages.Take gives an unused page to one caller exclusively, which may remove it.
// Pages.Fetch downloads an evicted page, Pages.Forget marks it as deleted. Pages.Where returns the
// state.
//
// These rules keep a page complete or absent, whenever a process dies or the power fails:
//
//	A1  If the page's directory exists, the page is here and complete; a file {page}.away beside
//	    it has no meaning and is removed when the repository is opened.
//	A2  To leave, the file {page}.away is written first, durably; then the directory is renamed to
//	    {page}.gone-{n}, durably; only then is anything in it removed.
//	A3  To come, a page is made and filled as {page}.coming, and renamed once it is complete.
//	A4  Directories with these two names are removed when the repository is opened.
//
// The package does not use the content of pages, nor clouds: a Host opens, closes and fills pages.
package presence
