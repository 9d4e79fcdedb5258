package ledger

import (
	"encoding/json"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/vfs"
)

// syncRecord is the content of the file `cloud-state`, as JSON: figures of earlier runs for Status.
// It proves nothing and nothing depends on it; one that cannot be read is begun anew.
type syncRecord struct {
	Version int          `json:"version"`
	Bucket  string       `json:"bucket"` // id; figures of another bucket are forgotten
	Since   time.Time    `json:"since"`
	Totals  syncTotals   `json:"totals"`
	Success time.Time    `json:"success"` // of a Sync of all pages
	Pages   []pageRecord `json:"pages"`

	index map[pageKey]int // of Pages; nil until it is needed
}

// syncTotals are sums over all runs.
type syncTotals struct {
	A       int64 `json:"a"`
	B       int64 `json:"b"`
	Free    int64 `json:"free"`
	Up      int64 `json:"up"`
	Down    int64 `json:"down"`
	Retries int64 `json:"retries"`
	Entries int64 `json:"entries"`
	Applied int64 `json:"applied"`
	Points  int64 `json:"checkpoints"`
}

// pageRecord is what is remembered of a page.
type pageRecord struct {
	Ledger  []byte    `json:"ledger"`
	Page    []byte    `json:"page"`
	Success time.Time `json:"success"`
	Err     string    `json:"error,omitempty"` // of the last attempt, "" when that succeeded
}

const (
	recordVersion   = 1
	maxRecordBytes  = 64 << 20
	saveRecordEvery = time.Minute
)

// readRecord returns the record of a bucket, a new one when there is none.
func (r *Repository) readRecord(bucket string) *syncRecord {
	fresh := &syncRecord{Version: recordVersion, Bucket: bucket, Since: r.clock.Now().UTC()}
	b, err := vfs.ReadFile(r.fs, r.disk.File(cloudStateName), maxRecordBytes)
	if err != nil {
		return fresh
	}
	var rec syncRecord
	if json.Unmarshal(b, &rec) != nil || rec.Version != recordVersion || rec.Bucket != bucket {
		return fresh
	}
	return &rec
}

// remember adds what happened since the last time to the record and writes that. link is nil when
// there is none. What goes wrong is logged: nobody needs the figures to go on.
func (r *Repository) remember(link *cloudLink) {
	if r.o.ReadOnly {
		return
	}
	r.cloud.saving <- struct{}{}
	defer func() { <-r.cloud.saving }()
	var states []cloudsync.PageState
	var now cloudsync.Metrics
	var own bucket.Counts
	if link != nil {
		states, now, own = link.syncer.States(), link.syncer.Metrics(), link.own.Counts()
	}
	r.cloud.mu.Lock()
	rec := r.cloud.record
	if link != nil {
		rec.Totals.add(link, now, own)
		link.saved, link.ended = now, own
	}
	for i := range states {
		rec.note(&states[i])
	}
	b, err := json.Marshal(rec)
	r.cloud.mu.Unlock()
	if err == nil {
		err = r.disk.Replace(r.disk.File(cloudStateName), b)
	}
	if err != nil {
		r.o.Logger.Warn("figures of sync could not be saved", "error", err)
	}
}

// add adds what link has counted since its figures were saved.
func (t *syncTotals) add(link *cloudLink, now cloudsync.Metrics, own bucket.Counts) {
	t.A += now.A - link.saved.A + own.A - link.ended.A
	t.B += now.B - link.saved.B + own.B - link.ended.B
	t.Free += now.Free - link.saved.Free + own.Free - link.ended.Free
	t.Up += now.Up - link.saved.Up + own.Up - link.ended.Up
	t.Down += now.Down - link.saved.Down + own.Down - link.ended.Down
	t.Retries += now.Retries - link.saved.Retries
	t.Entries += now.Entries - link.saved.Entries
	t.Applied += now.Applied - link.saved.Applied
	t.Points += now.Checkpoints - link.saved.Checkpoints
}

// note takes over the state of a page.
func (rec *syncRecord) note(s *cloudsync.PageState) {
	p := rec.page(s.Ledger, s.Page)
	if s.LastSuccess.After(p.Success) {
		p.Success = s.LastSuccess.UTC()
	}
	p.Err = ""
	for _, err := range []error{s.UploadErr, s.DownloadErr} {
		if err != nil {
			p.Err = err.Error()
		}
	}
}

// page returns the record of a page, making it when there is none.
func (rec *syncRecord) page(ledger string, id PageID) *pageRecord {
	if p := rec.find(ledger, id); p != nil {
		return p
	}
	rec.index[pageKey{Ledger: ledger, ID: id}] = len(rec.Pages)
	rec.Pages = append(rec.Pages, pageRecord{Ledger: []byte(ledger), Page: id[:]})
	return &rec.Pages[len(rec.Pages)-1]
}

// find returns the record of a page, nil when there is none.
func (rec *syncRecord) find(ledger string, id PageID) *pageRecord {
	if rec.index == nil {
		rec.index = make(map[pageKey]int, len(rec.Pages))
		for i, p := range rec.Pages {
			if len(p.Page) == len(id) {
				rec.index[pageKey{Ledger: string(p.Ledger), ID: PageID(p.Page)}] = i
			}
		}
	}
	if i, ok := rec.index[pageKey{Ledger: ledger, ID: id}]; ok {
		return &rec.Pages[i]
	}
	return nil
}

// startSaving starts the goroutine that writes the record now and then, so that a process that is
// killed leaves one. It ends when the link does.
func (r *Repository) startSaving(link *cloudLink) {
	r.cloud.saver.Go(func() {
		for {
			r.cloud.mu.Lock()
			current, changed := r.cloud.link == link, r.cloud.watch
			r.cloud.mu.Unlock()
			if !current {
				return
			}
			tick, release := r.clock.After(saveRecordEvery)
			select {
			case <-tick:
				r.remember(link)
			case <-changed:
			}
			release()
		}
	})
}
