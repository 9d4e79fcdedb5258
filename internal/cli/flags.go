package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// addParsed adds a flag whose value parse reads. Its usage names in back quotes what it takes.
func addParsed[T any](cmd *cobra.Command, to *T, name, usage string, parse func(string) (T, error)) {
	cmd.Flags().Func(name, usage, func(text string) (err error) {
		*to, err = parse(text)
		return err
	})
}

// addLimit adds the flag that bounds how many results a verb prints.
func addLimit(cmd *cobra.Command, limit *int, usage string) {
	cmd.Flags().IntVarP(limit, "limit", "n", 0, usage)
}

// parseRate reads a number of bytes a second, a size with its unit, or 0 for no limit.
func parseRate(text string) (int64, error) {
	switch {
	case text == "0":
		return 0, nil
	case strings.Trim(text, "0123456789.") == "": // such flags were numbers of KiB once
		return 0, errors.New("want a number and a unit, such as 512K")
	}
	return parseSize(text)
}

// parseSize reads a number of bytes with a unit: K, M, G or T, which are powers of 1024, with or
// without iB. "" is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	upper := strings.ToUpper(strings.TrimSpace(text))
	number := strings.TrimRight(upper, "KMGTIB ")
	factor := 1.0
	switch strings.TrimSpace(upper[len(number):]) {
	case "", "B":
	case "K", "KIB":
		factor = 1 << 10
	case "M", "MIB":
		factor = 1 << 20
	case "G", "GIB":
		factor = 1 << 30
	case "T", "TIB":
		factor = 1 << 40
	default:
		return 0, errors.New("the unit is none of K, M, G, T")
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*factor >= 1) || n*factor > 1<<62 || strings.ContainsAny(number, "EXPN_") {
		return 0, errors.New("want a number and a unit, such as 500M")
	}
	return int64(n * factor), nil
}

// parseAge reads a duration with units that time.ParseDuration does not know: d for days, w for
// weeks, y for years of 365 days. "" is 0.
func parseAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	const day = 24 * time.Hour
	unit := map[byte]time.Duration{'d': day, 'w': 7 * day, 'y': 365 * day}[text[len(text)-1]]
	if unit == 0 {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d, nil
		}
	} else if n, err := strconv.ParseUint(text[:len(text)-1], 10, 32); err == nil && n > 0 && n <= uint64(math.MaxInt64/unit) {
		return time.Duration(n) * unit, nil
	}
	return 0, errors.New("want a time above 0, such as 12h, 30d, 8w or 1y")
}
