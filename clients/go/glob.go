package tavern

// globMatches reports whether a Redis glob matches a name, byte by byte, with the same result as the server for every pattern. A
// message names its channel, not the pattern that matched. Backtracking only ever extends the last star, so the time is bounded.
func globMatches(pattern, name string) bool {
	p, n, star, reached := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, reached = p, n
			p++
			continue
		}
		if after, ok := globOne(pattern, p, name[n]); ok {
			p, n = after, n+1
		} else if star >= 0 {
			reached++
			p, n = star+1, reached
		} else {
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globOne is the position after the element at p, if that matches this byte.
func globOne(pattern string, p int, one byte) (int, bool) {
	if p >= len(pattern) {
		return 0, false
	}
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return globClass(pattern, p+1, one)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == one
}

func globClass(pattern string, p int, one byte) (int, bool) {
	inverted := p < len(pattern) && pattern[p] == '^'
	if inverted {
		p++
	}
	found := false
	// A class that is not closed ends with the pattern, as in Redis.
	for p < len(pattern) && pattern[p] != ']' {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			found = found || pattern[p+1] == one
			p += 2
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := pattern[p], pattern[p+2]
			if low > high {
				low, high = high, low
			}
			found = found || low <= one && one <= high
			p += 3
		default:
			found = found || pattern[p] == one
			p++
		}
	}
	if p < len(pattern) {
		p++
	}
	return p, found != inverted
}
