// Package filetree imports files into a page and exports them: directory trees, single files and
// JSON lines.
//
// A file of a tree is two entries of the page. Its path (relative, slash separated) holds the
// content, and the key 0x00 "attr" 0x00 path holds its attributes: type, mode and modification
// time. No path begins with 0x00, so the two sets of keys are disjoint. The content of a symbolic
// link is its target. The path of a directory ends in a slash, so that it stands before the paths
// below it; that of the imported directory is "". A directory has attributes, and an empty entry
// when it is empty. [List] and [Diff] combine both entries of a file, and list a directory that is
// not empty by its files.
//
// The key 0x00 "attr" 0x00 0x00 "source" holds the path, on its device, of the last imported
// directory, and nothing when the files are from several places. It is synced with the page, sealed
// like all content.
//
// Invariants, cited by the tests:
//
//	F1  An import is one transaction, and none when nothing has changed.
//	F2  After an import without warnings, the paths with attributes are exactly the files, links
//	    and directories of the tree; entries without attributes are left alone.
//	F3  Export of an imported tree gives equal contents, link targets and modification times, and
//	    with Preserve equal modes.
//	F4  Export changes nothing outside its target, whatever the keys and link targets are.
//	F5  A warning reports each path that could not be read or written; all others are done.
//	F6  Without Preserve, export sets no setuid, setgid or sticky bit, and no permission that the
//	    umask removes.
//	F7  An import that would remove more than half of the files, or is from another directory than
//	    the page, changes nothing unless Mirror or NoDelete is set.
//
// Memory is bounded: trees, pages and values are streamed; only the names of one directory at a
// time are held.
//
// The package uses only package ledger and internal/base. Its functions may be called concurrently
// on different pages. Its API may change with any release.
package filetree
