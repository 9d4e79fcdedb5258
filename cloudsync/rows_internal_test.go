package cloudsync

import (
	"math"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
)

// TestSenselessRows passes over rows with numbers that no log has, and times that no clock says:
// with them the device would never look for a floor, write a checkpoint or tell how far it is.
func TestSenselessRows(t *testing.T) {
	now, far := time.Unix(1_700_000_000, 5), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	good := floorRow{format.Floor{K: 3, Low: 7, Checkpoint: 8}, now}
	if f := parseFloor(good.encode()); f.floor != good.floor || !f.seen.Equal(now) {
		t.Errorf("floor %+v", f)
	}
	for _, f := range []format.Floor{{K: math.MaxUint64}, {K: 1, Low: 1 << 63, Checkpoint: 1 << 63}, {K: 1, Low: 1, Checkpoint: math.MaxUint64}} {
		if got := parseFloor(floorRow{f, now}.encode()); got != (floorRow{}) {
			t.Errorf("floor %+v is %+v", f, got)
		}
	}
	b := good.encode()
	b[24] = 0xff
	if got := parseFloor(b); got != (floorRow{}) {
		t.Errorf("floor of another time: %+v", got)
	}
	if got := parseFloor(floorRow{good.floor, far}.encode()); got.seen.Before(now) {
		t.Errorf("a bucket in the year 9999 says %s", got.seen)
	}
	for _, c := range []struct {
		row checkpointRow
		ok  bool
	}{{checkpointRow{3, 4, 5}, true}, {checkpointRow{math.MaxUint64, 4, 5}, false}, {checkpointRow{3, 1 << 63, 5}, false}, {checkpointRow{3, 4, math.MaxUint64}, false}} {
		if got, ok := parseCheckpointRow(c.row.encode()); ok != c.ok || ok && got != c.row {
			t.Errorf("checkpoint %+v is %+v, %v", c.row, got, ok)
		}
	}
	id := format.ID{1}
	for _, d := range []struct {
		row deviceRow
		ok  bool
	}{{deviceRow{9, now}, true}, {deviceRow{math.MaxUint64, now}, false}} {
		if got := parseDevice(d.row.encode(id), id); (got.number == d.row.number) != d.ok {
			t.Errorf("device %+v is %+v", d.row, got)
		}
	}
	if got := parseDevice(deviceRow{9, now}.encode(format.ID{2}), id); got != (deviceRow{}) {
		t.Errorf("another device: %+v", got)
	}
}
