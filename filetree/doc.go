// Package filetree brings files into a page and back: directory trees, single files and JSON lines.
//
// A file of a tree is two entries of the page: its path (relative, slash separated) holds the
// content, and the key 0x00 "attr" 0x00 path holds its attributes: type, mode and modification
// time. No path begins with 0x00, so the two never meet. The target of a symbolic link is the
// content of its entry. A directory has attributes, and an entry with no content when it is empty;
// the path of the directory that was imported is "". [List] and [Diff] show both entries of a file
// as one, and a directory that is not empty by its files.
//
// The key 0x00 "attr" 0x00 0x00 "source" holds the path, on its device, of the directory that was
// imported last, and nothing when the files come from several places. It goes with the page to
// other devices, sealed as all content is.
//
// Invariants, cited by the tests:
//
//	F1  An import is one transaction, and none when nothing has changed.
//	F2  After an import without warnings, the paths with attributes are exactly the files, links
//	    and directories of the tree; entries without attributes are left alone.
//	F3  Export of an imported tree gives equal contents, link targets and modification times, and
//	    with Preserve equal modes.
//	F4  Export touches nothing outside its target, whatever the keys and link targets are.
//	F5  What could not be read or written is told by a warning, and everything else is still done.
//	F6  Without Preserve, nothing that export makes has setuid, setgid or sticky, or a permission
//	    that the umask takes.
//	F7  An import that would remove more than half of the files, or come from another directory
//	    than the page, changes nothing unless Mirror or NoDelete is set.
//
// Memory is bounded: trees, pages and values stream; only the names of one directory at a time are
// held.
//
// The package sees package ledger and internal/base alone, so what it does any program can do. Its
// functions may be called concurrently on different pages. It may change with any release.
package filetree
