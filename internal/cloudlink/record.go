package cloudlink

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// syncRecord is the content of the file `cloud-state`, as JSON: figures of earlier runs for Status.
// Nothing depends on it; an unreadable record is replaced by a new one.
type syncRecord struct {
	Version int                    `json:"version"`
	Bucket  string                 `json:"bucket"` // id; figures of another bucket are dropped
	Since   time.Time              `json:"since"`
	Totals  cloudsync.Metrics      `json:"totals"`  // counts only, over all runs
	Success time.Time              `json:"success"` // of a Sync of all pages
	Pages   map[string]*pageRecord `json:"pages"`   // see page
}

// pageRecord is the stored record of a page.
type pageRecord struct {
	Success time.Time `json:"success"`
	// UpErr and DownErr say why the last upload and download failed, "" when they succeeded.
	UpErr   string `json:"upError,omitempty"`
	DownErr string `json:"downError,omitempty"`
	// Up and Down are the activities after these failures.
	Up   cloudsync.Activity `json:"up,omitempty"`
	Down cloudsync.Activity `json:"down,omitempty"`
}

const (
	recordVersion  = 3
	maxRecordBytes = 64 << 20
)

// readRecord returns the record of a bucket, a new one when there is none.
func (l *Link) readRecord(bucket string) *syncRecord {
	fresh := &syncRecord{Version: recordVersion, Bucket: bucket, Since: l.o.Clock.Now().UTC()}
	b, err := vfs.ReadFile(l.o.Disk.FS, l.o.Disk.File(cloudStateName), maxRecordBytes)
	if err != nil {
		return fresh
	}
	var rec syncRecord
	if json.Unmarshal(b, &rec) != nil || rec.Version != recordVersion || rec.Bucket != bucket {
		return fresh
	}
	return &rec
}

// Remember adds the counts since the last call to the stored figures. Errors are only logged, since
// the figures are not essential.
func (l *Link) Remember() {
	if l.o.ReadOnly {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	conn := l.Connected()
	var states []cloudsync.PageState
	var now cloudsync.Metrics
	if conn != nil {
		states, now = conn.Syncer.States(), conn.Syncer.Metrics()
	}
	l.mu.Lock()
	rec := l.record
	if conn != nil {
		addCounts(&rec.Totals, &now, &conn.saved)
		conn.saved = now
	}
	for i := range states {
		rec.note(&states[i])
	}
	b, err := json.Marshal(rec)
	l.mu.Unlock()
	if err == nil {
		err = l.o.Disk.Replace(l.o.Disk.File(cloudStateName), b)
	}
	if err != nil {
		l.o.Logger.Warn("figures of sync could not be saved", "error", err)
	}
}

// addCounts adds the counts since saved.
func addCounts(t, now, saved *cloudsync.Metrics) {
	t.A += now.A - saved.A
	t.B += now.B - saved.B
	t.Free += now.Free - saved.Free
	t.Up += now.Up - saved.Up
	t.Down += now.Down - saved.Down
	t.Retries += now.Retries - saved.Retries
	t.Entries += now.Entries - saved.Entries
	t.Applied += now.Applied - saved.Applied
	t.Checkpoints += now.Checkpoints - saved.Checkpoints
}

// note copies the state of a page.
func (rec *syncRecord) note(s *cloudsync.PageState) {
	p := rec.page(base.Page{Ledger: s.Ledger, ID: s.Page})
	if s.LastSuccess.After(p.Success) {
		p.Success = s.LastSuccess.UTC()
	}
	p.UpErr, p.DownErr = "", ""
	if s.UploadErr != nil {
		p.UpErr, p.Up = s.UploadErr.Error(), s.Upload
	}
	if s.DownloadErr != nil {
		p.DownErr, p.Down = s.DownloadErr.Error(), s.Download
	}
}

// page returns the record of a page, and makes it when there is none. Its name in the file has the
// id and the ledger as hexadecimal digits.
func (rec *syncRecord) page(k base.Page) *pageRecord {
	name := fmt.Sprintf("%x/%x", k.ID, k.Ledger)
	p := rec.Pages[name]
	if p == nil {
		p = &pageRecord{}
		if rec.Pages == nil {
			rec.Pages = map[string]*pageRecord{}
		}
		rec.Pages[name] = p
	}
	return p
}

// Figures returns the counts of all runs since the cloud was set, that time, and the time of the
// last successful sync of all pages.
func (l *Link) Figures() (total cloudsync.Metrics, since, success time.Time) {
	if l.Connected() != nil {
		l.Remember()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.Totals, l.record.Since, l.record.Success
}

// Metrics returns the figures of this run; all zero while not connected.
func (l *Link) Metrics() cloudsync.Metrics {
	if conn := l.Connected(); conn != nil {
		return conn.Syncer.Metrics()
	}
	return cloudsync.Metrics{}
}
