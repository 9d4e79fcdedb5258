package cloudlink

import (
	"encoding/json"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// syncRecord is the content of the file `cloud-state`, as JSON: figures of earlier runs for Status.
// Nothing depends on it; an unreadable record is replaced by a new one.
type syncRecord struct {
	Version int               `json:"version"`
	Bucket  string            `json:"bucket"` // id; figures of another bucket are dropped
	Since   time.Time         `json:"since"`
	Totals  cloudsync.Metrics `json:"totals"`  // counts only, over all runs
	Success time.Time         `json:"success"` // of a Sync of all pages
	Pages   []pageRecord      `json:"pages"`

	index map[base.Page]int // of Pages; made on demand
}

// pageRecord is the stored record of a page.
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
func (l *Link) Remember() { l.remember(l.Connected()) }

// remember adds the counts since the last call to the record and writes it. conn is nil when there
// is none. Errors are only logged, since the figures are not essential.
func (l *Link) remember(conn *Conn) {
	if l.o.ReadOnly {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
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

// page returns the record of a page, and makes it when there is none.
func (rec *syncRecord) page(ledger string, id [16]byte) *pageRecord {
	if p := rec.find(ledger, id); p != nil {
		return p
	}
	rec.index[base.Page{Ledger: ledger, ID: id}] = len(rec.Pages)
	rec.Pages = append(rec.Pages, pageRecord{Ledger: []byte(ledger), Page: id[:]})
	return &rec.Pages[len(rec.Pages)-1]
}

// find returns the record of a page, nil when there is none.
func (rec *syncRecord) find(ledger string, id [16]byte) *pageRecord {
	if rec.index == nil {
		rec.index = make(map[base.Page]int, len(rec.Pages))
		for i, p := range rec.Pages {
			if len(p.Page) == len(id) {
				rec.index[base.Page{Ledger: string(p.Ledger), ID: [16]byte(p.Page)}] = i
			}
		}
	}
	if i, ok := rec.index[base.Page{Ledger: ledger, ID: id}]; ok {
		return &rec.Pages[i]
	}
	return nil
}

// startSaving starts a goroutine that periodically writes the record, so that a killed process
// leaves one. It ends with the connection.
func (l *Link) startSaving(conn *Conn) {
	l.saver.Go(func() {
		for {
			l.mu.Lock()
			current, changed := l.conn == conn, l.watch
			l.mu.Unlock()
			if !current {
				return
			}
			tick, release := l.o.Clock.After(saveRecordEvery)
			select {
			case <-tick:
				l.remember(conn)
			case <-changed:
			}
			release()
		}
	})
}

// Figures returns the counts of all runs since the cloud was set, that time, and the time of the
// last successful sync of all pages.
func (l *Link) Figures() (total cloudsync.Metrics, since, success time.Time) {
	if conn := l.Connected(); conn != nil {
		l.remember(conn)
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
