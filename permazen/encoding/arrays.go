package encoding

// Arrays of primitives are elements and a terminator. Integers end with a byte that begins none,
// floats with zero bytes, which encode no number. Booleans have two bits each.

func addArrays(add func(string, *Encoding)) {
	add("boolean[]", codec(appendBools, bools).starts(true, false).nullable("boolean[]"))
	add("byte[]", codec(appendBytes, getBytes).starts(true, false).by(intsLen[int8]).nullable("byte[]"))
	add("char[]", codec(appendChars, chars).starts(true, false).by(textLen).nullable("char[]"))
	add("short[]", ints[int16]().nullable("short[]"))
	add("int[]", ints[int32]().nullable("int[]"))
	add("long[]", ints[int64]().nullable("long[]"))
	add("float[]", numbers(4, appendFloat, getFloat, floatLen).nullable("float[]"))
	add("double[]", numbers(8, appendDouble, getDouble, doubleLen).nullable("double[]"))
}

func ints[T signed]() *Encoding {
	put := func(dst []byte, list []T) ([]byte, error) {
		for _, v := range list {
			dst = AppendInt(dst, int64(v))
		}
		return append(dst, 0), nil
	}
	get := func(b []byte) ([]T, int, error) {
		list := []T{}
		n, err := elements(b, 0, func(b []byte) (int, error) {
			v, n, err := narrow[T](Int(b))
			list = append(list, v)
			return n, err
		})
		return list, n, err
	}
	return codec(put, get).starts(true, false).by(intsLen[T])
}

func intsLen[T signed](b []byte) (int, error) {
	return elements(b, 0, func(b []byte) (int, error) {
		_, n, err := narrow[T](StrictInt(b))
		return n, err
	})
}

func appendBytes(dst []byte, list []byte) ([]byte, error) {
	for _, v := range list {
		dst = AppendInt(dst, int64(int8(v)))
	}
	return append(dst, 0), nil
}

func getBytes(b []byte) ([]byte, int, error) {
	list := []byte{}
	n, err := elements(b, 0, func(b []byte) (int, error) {
		v, n, err := narrow[int8](Int(b))
		list = append(list, byte(v))
		return n, err
	})
	return list, n, err
}

func numbers[T float32 | float64](
	size int, put func([]byte, T) ([]byte, error), get func([]byte) (T, int, error), length func([]byte) (int, error),
) *Encoding {
	each := func(b []byte, f func([]byte) error) (int, error) {
		for i := 0; ; i += size {
			if len(b) < i+size {
				return 0, errShort
			}
			if big(b[i:i+size]) == 0 {
				return i + size, nil
			}
			if err := f(b[i:]); err != nil {
				return 0, err
			}
		}
	}
	putAll := func(dst []byte, list []T) ([]byte, error) {
		for _, v := range list {
			dst, _ = put(dst, v)
		}
		return append(dst, make([]byte, size)...), nil
	}
	getAll := func(b []byte) ([]T, int, error) {
		list := []T{}
		n, err := each(b, func(b []byte) error {
			v, _, err := get(b)
			list = append(list, v)
			return err
		})
		return list, n, err
	}
	return codec(putAll, getAll).starts(true, true).by(func(b []byte) (int, error) {
		return each(b, func(b []byte) error { _, err := length(b); return err })
	})
}

const (
	pairFalse = 1
	pairTrue  = 2
)

func appendBools(dst []byte, list []bool) ([]byte, error) {
	for i := 0; i <= len(list); i += 4 {
		var c byte
		for j := range 4 {
			c <<= 2
			switch {
			case i+j >= len(list):
			case list[i+j]:
				c |= pairTrue
			default:
				c |= pairFalse
			}
		}
		dst = append(dst, c)
	}
	return dst, nil
}

func bools(b []byte) ([]bool, int, error) {
	list := []bool{}
	for i, c := range b {
		for shift := 6; shift >= 0; shift -= 2 {
			switch c >> shift & 3 {
			case 0:
				if c&(1<<shift-1) != 0 {
					return nil, 0, errCanonical
				}
				return list, i + 1, nil
			case 3:
				return nil, 0, errFirst
			default:
				list = append(list, c>>shift&3 == pairTrue)
			}
		}
	}
	return nil, 0, errShort
}
