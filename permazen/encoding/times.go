package encoding

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// The types of java.time without an equivalent in Go.
type (
	// Duration is a signed length of time.
	Duration struct {
		Seconds int64
		Nanos   int32 // 0 to 999 999 999
	}
	// LocalDateTime is a date and time of day without zone, counted as if in UTC.
	LocalDateTime struct {
		Seconds int64 // since 1970
		Nanos   int32 // 0 to 999 999 999
	}
	// LocalDate is a day, counted from 1970-01-01.
	LocalDate int64
	// LocalTime is a time of day in nanoseconds.
	LocalTime int64
	// MonthDay is a day of each year.
	MonthDay struct{ Month, Day int }
	// ZoneOffset is the offset of local time from UTC in seconds, positive to the east.
	ZoneOffset int32
	// OffsetDateTime is an instant with the offset of local time from UTC.
	OffsetDateTime struct {
		Seconds int64 // since 1970, in UTC
		Nanos   int32 // 0 to 999 999 999
		Offset  ZoneOffset
	}
	// OffsetTime is a local time of day with its offset from UTC.
	OffsetTime struct {
		Time   LocalTime
		Offset ZoneOffset
	}
	// ZonedDateTime is an OffsetDateTime in a zone, such as Europe/Paris. Zone is empty when the
	// offset is the zone.
	ZonedDateTime struct {
		OffsetDateTime
		Zone string
	}
	// Period is an amount of calendar time.
	Period struct{ Years, Months, Days int32 }
	// YearMonth is a month of a year.
	YearMonth struct {
		Year  int32
		Month int
	}
	// Year is a year of the proleptic calendar.
	Year int32
	// IntSummaryStatistics summarize integers of 32 bits.
	IntSummaryStatistics struct {
		Sum, Count int64
		Min, Max   int32
	}
	// LongSummaryStatistics summarize integers of 64 bits.
	LongSummaryStatistics struct{ Sum, Count, Min, Max int64 }
	// DoubleSummaryStatistics summarize floating point numbers.
	DoubleSummaryStatistics struct {
		Sum      float64
		Count    int64
		Min, Max float64
	}
)

// Bounds from java.time.
const (
	maxNanos   = 999_999_999
	maxOffset  = 18 * 3600
	dayNanos   = 24 * int64(time.Hour)
	maxYear    = 999_999_999
	minInstant = -31_557_014_167_219_200
	maxInstant = 31_556_889_864_403_199
	minDay     = -365_243_219_162
	maxDay     = 365_241_780_471
	anyLow     = -1 << 63
	anyHigh    = 1<<63 - 1
)

// part is the range of one integer of a value.
type part struct{ low, high int64 }

// parts makes the encoding of values that are a sequence of integers.
func parts[T any](split func(T) []int64, join func([]int64) T, bounds ...part) *Encoding {
	check := func(v []int64) error {
		for i, p := range bounds {
			if v[i] < p.low || v[i] > p.high {
				return fmt.Errorf("%d is not from %d to %d: %w", v[i], p.low, p.high, base.ErrInvalid)
			}
		}
		return nil
	}
	put := func(dst []byte, t T) ([]byte, error) {
		v := split(t)
		if err := check(v); err != nil {
			return nil, err
		}
		for _, x := range v {
			dst = AppendInt(dst, x)
		}
		return dst, nil
	}
	get := func(b []byte) (T, int, error) {
		v, at := make([]int64, len(bounds)), 0
		for i := range v {
			x, n, err := Int(b[at:])
			if err != nil {
				return *new(T), 0, err
			}
			v[i], at = x, at+n
		}
		if check(v) != nil {
			return *new(T), 0, errRange
		}
		return join(v), at, nil
	}
	return codec(put, get)
}

var (
	anyPart    = part{anyLow, anyHigh}
	intPart    = part{-1 << 31, 1<<31 - 1}
	nanoPart   = part{0, maxNanos}
	offsetPart = part{-maxOffset, maxOffset}
)

func addTimes(add func(string, *Encoding)) {
	named := func(name string, e *Encoding) { add(name, e.nullable(name)) }
	named("Date", parts(func(t time.Time) []int64 { return []int64{t.UnixMilli()} },
		func(v []int64) time.Time { return time.UnixMilli(v[0]).UTC() }, anyPart))
	named("Instant", parts(func(t time.Time) []int64 { return []int64{t.Unix(), int64(t.Nanosecond())} },
		func(v []int64) time.Time { return time.Unix(v[0], v[1]).UTC() }, part{minInstant, maxInstant}, nanoPart))
	named("Duration", parts(func(d Duration) []int64 { return []int64{d.Seconds, int64(d.Nanos)} },
		func(v []int64) Duration { return Duration{v[0], int32(v[1])} }, anyPart, nanoPart))
	named("LocalDateTime", parts(func(d LocalDateTime) []int64 { return []int64{d.Seconds, int64(d.Nanos)} },
		func(v []int64) LocalDateTime { return LocalDateTime{v[0], int32(v[1])} }, part{minInstant, maxInstant}, nanoPart))
	named("LocalDate", parts(func(d LocalDate) []int64 { return []int64{int64(d)} },
		func(v []int64) LocalDate { return LocalDate(v[0]) }, part{minDay, maxDay}))
	named("LocalTime", parts(func(t LocalTime) []int64 { return []int64{int64(t)} },
		func(v []int64) LocalTime { return LocalTime(v[0]) }, part{0, dayNanos - 1}))
	named("ZoneOffset", parts(func(o ZoneOffset) []int64 { return []int64{-int64(o)} },
		func(v []int64) ZoneOffset { return ZoneOffset(-v[0]) }, offsetPart))
	named("Period", parts(func(p Period) []int64 { return []int64{int64(p.Years), int64(p.Months), int64(p.Days)} },
		func(v []int64) Period { return Period{int32(v[0]), int32(v[1]), int32(v[2])} }, intPart, intPart, intPart))
	named("YearMonth", parts(func(m YearMonth) []int64 { return []int64{int64(m.Year), int64(m.Month)} },
		func(v []int64) YearMonth { return YearMonth{int32(v[0]), int(v[1])} }, part{-maxYear, maxYear}, part{1, 12}))
	named("Year", parts(func(y Year) []int64 { return []int64{int64(y)} },
		func(v []int64) Year { return Year(v[0]) }, part{-maxYear, maxYear}))
	named("MonthDay", codec(appendMonthDay, monthDay).starts(true, false))
	addZoned(named)
	named("IntSummaryStatistics", parts(
		func(s IntSummaryStatistics) []int64 { return []int64{s.Sum, s.Count, int64(s.Min), int64(s.Max)} },
		func(v []int64) IntSummaryStatistics {
			return IntSummaryStatistics{v[0], v[1], int32(v[2]), int32(v[3])}
		}, anyPart, anyPart, intPart, intPart))
	named("LongSummaryStatistics", parts(
		func(s LongSummaryStatistics) []int64 { return []int64{s.Sum, s.Count, s.Min, s.Max} },
		func(v []int64) LongSummaryStatistics { return LongSummaryStatistics{v[0], v[1], v[2], v[3]} },
		anyPart, anyPart, anyPart, anyPart))
	named("DoubleSummaryStatistics", codec(appendDoubles, doubles).starts(true, true))
}

func addZoned(named func(string, *Encoding)) {
	instant := []part{{minInstant, maxInstant}, nanoPart, offsetPart}
	split := func(d OffsetDateTime) []int64 { return []int64{d.Seconds, int64(d.Nanos), -int64(d.Offset)} }
	join := func(v []int64) OffsetDateTime {
		return OffsetDateTime{v[0], int32(v[1]), ZoneOffset(-v[2])}
	}
	offset := parts(split, join, instant...)
	named("OffsetDateTime", offset)
	named("OffsetTime", codec(appendOffsetTime, offsetTime))
	zone := textCodec().nullable("")
	put := func(dst []byte, z ZonedDateTime) ([]byte, error) {
		dst, err := offset.put(dst, z.OffsetDateTime)
		if err != nil {
			return nil, err
		}
		if z.Zone == "" {
			return zone.put(dst, nil)
		}
		return zone.put(dst, z.Zone)
	}
	get := func(b []byte) (ZonedDateTime, int, error) {
		d, n, err := offset.get(b)
		if err != nil {
			return ZonedDateTime{}, 0, err
		}
		name, m, err := zone.get(b[n:])
		if err != nil {
			return ZonedDateTime{}, 0, err
		}
		z := ZonedDateTime{OffsetDateTime: d.(OffsetDateTime)}
		z.Zone, _ = name.(string)
		return z, n + m, nil
	}
	named("ZonedDateTime", codec(put, get))
}

func appendOffsetTime(dst []byte, t OffsetTime) ([]byte, error) {
	if t.Time < 0 || int64(t.Time) >= dayNanos || t.Offset < -maxOffset || t.Offset > maxOffset {
		return nil, fmt.Errorf("encode the time %d with offset %d: %w", t.Time, t.Offset, base.ErrInvalid)
	}
	dst = AppendInt(dst, int64(t.Time)-int64(t.Offset)*int64(time.Second))
	return AppendInt(dst, -int64(t.Offset)), nil
}

func offsetTime(b []byte) (OffsetTime, int, error) {
	utc, n, err := Int(b)
	if err != nil {
		return OffsetTime{}, 0, err
	}
	offset, m, err := Int(b[n:])
	if err != nil {
		return OffsetTime{}, 0, err
	}
	if offset < -maxOffset || offset > maxOffset || utc < -2*dayNanos || utc > 2*dayNanos {
		return OffsetTime{}, 0, errRange
	}
	local := utc - offset*int64(time.Second)
	if local < 0 || local >= dayNanos {
		return OffsetTime{}, 0, errRange
	}
	return OffsetTime{LocalTime(local), ZoneOffset(-offset)}, n + m, nil
}

func appendMonthDay(dst []byte, d MonthDay) ([]byte, error) {
	if !d.valid() {
		return nil, fmt.Errorf("encode day %d of month %d: %w", d.Day, d.Month, base.ErrInvalid)
	}
	return AppendUint(dst, uint32(d.Month-1)<<5|uint32(d.Day-1)), nil
}

// valid reports whether the day exists in a leap year.
func (d MonthDay) valid() bool {
	t := time.Date(2000, time.Month(d.Month), d.Day, 0, 0, 0, 0, time.UTC)
	return d.Month >= 1 && d.Month <= 12 && int(t.Month()) == d.Month && t.Day() == d.Day
}

func monthDay(b []byte) (MonthDay, int, error) {
	v, n, err := Uint(b)
	if err != nil {
		return MonthDay{}, 0, err
	}
	d := MonthDay{int(v>>5) + 1, int(v&31) + 1}
	if v >= 12<<5 || !d.valid() {
		return MonthDay{}, 0, errRange
	}
	return d, n, nil
}

func appendDoubles(dst []byte, s DoubleSummaryStatistics) ([]byte, error) {
	dst, _ = appendDouble(dst, s.Sum)
	dst, _ = appendDouble(AppendInt(dst, s.Count), s.Min)
	return appendDouble(dst, s.Max)
}

func doubles(b []byte) (DoubleSummaryStatistics, int, error) {
	var s DoubleSummaryStatistics
	sum, n, err := getDouble(b)
	if err != nil {
		return s, 0, err
	}
	count, m, err := Int(b[n:])
	if err != nil {
		return s, 0, err
	}
	n += m
	if len(b) < n+16 {
		return s, 0, errShort
	}
	s.Sum, s.Count = sum, count
	s.Min, _, _ = getDouble(b[n:])
	s.Max, _, _ = getDouble(b[n+8:])
	return s, n + 16, nil
}
