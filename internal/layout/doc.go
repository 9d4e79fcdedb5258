// Package layout defines where a repository keeps its files, and the formats of the small files.
//
// A Dir is the directory of a repository on its file system. In the directory of the format version
// are
//
//	repository            id and secret, see Identity
//	page_usage_db/        when pages were used
//	cloud, cloud-state    settings of the cloud, figures of sync
//	reserve               room for garbage collection on a full disk
//	ledgers/{ledger}/     the pages of a ledger
//	  {page}/             the files of a page
//	  {page}.away         why a page is not here, see Absence
//
// Dir lists pages (Pages, AwayPages), names their paths (PageDir, AwayFile) and reads and writes
// the small files. It holds no state and no lock: callers exclude concurrent changes. Errors name
// the file; damage is a *base.CorruptError, a newer format a *base.FormatError.
package layout
