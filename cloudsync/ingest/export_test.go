package ingest

// SetSmallBounds makes p hold next to nothing at once, so that little content shows what much
// would.
func SetSmallBounds(p *Page) {
	p.bounds = bounds{places: 3, missing: 2, waiting: 2, known: 2, scratch: 2000, ahead: 2, spool: 500}
}
