// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

// SecretNames are names that may be those of secrets, as agents offer them: namespace/name. Sorted, each once. They are kept in one text: a tenant can write
// tens of thousands, and each of them alone would need twice the memory that it has in etcd (K8S-24).
type SecretNames struct {
	packed string   // parted by nameEnd
	rest   []uint32 // hashes of those that are not kept, sorted
}

// mostSecretNames is how many names are kept of a configuration. A Gateway has places for 4,096 certificates, and so has each of its ListenerSets; those of a
// thousand are copied for each (SEC-16).
const mostSecretNames = 10_000

// nameEnd parts names: it is in none.
const nameEnd = `"`

// seed is that of the hashes of names. They are short: of a configuration with fifty thousand names, one of a hundred thousand others counts as named, too.
var seed = maphash.MakeSeed()

// MakeSecretNames returns the names that are given.
func MakeSecretNames(names ...string) SecretNames {
	all := make([][]byte, len(names))
	for i, name := range names {
		all[i] = []byte(name)
	}
	return packSecretNames(all)
}

// packSecretNames sorts what it is given.
func packSecretNames(names [][]byte) SecretNames {
	slices.SortFunc(names, bytes.Compare)
	names = slices.CompactFunc(names, bytes.Equal)
	var rest []uint32
	if len(names) > mostSecretNames {
		rest = make([]uint32, len(names)-mostSecretNames)
		for i, name := range names[mostSecretNames:] {
			rest[i] = uint32(maphash.Bytes(seed, name))
		}
		slices.Sort(rest)
		names = names[:mostSecretNames]
	}
	return SecretNames{string(bytes.Join(names, []byte(nameEnd))), rest}
}

// All are the names that are kept.
func (n SecretNames) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest, more := n.packed, n.packed != ""; more; {
			var name string
			if name, rest, more = strings.Cut(rest, nameEnd); !yield(name) {
				return
			}
		}
	}
}

// IsCut reports whether there are names that are not kept.
func (n SecretNames) IsCut() bool { return len(n.rest) > 0 }

// Has reports whether a name is one of them, kept or not.
func (n SecretNames) Has(name string) bool {
	if n.keeps(name) {
		return true
	}
	_, has := slices.BinarySearch(n.rest, uint32(maphash.String(seed, name)))
	return has
}

// keeps searches a name in the text, half by half: it begins behind one nameEnd, and ends before another.
func (n SecretNames) keeps(name string) bool {
	for from, to := 0, len(n.packed); from < to; {
		middle := (from + to) / 2
		begin := from + strings.LastIndex(n.packed[from:middle], nameEnd) + 1
		end := to
		if i := strings.Index(n.packed[middle:to], nameEnd); i >= 0 {
			end = middle + i
		}
		switch strings.Compare(n.packed[begin:end], name) {
		case 0:
			return true
		case -1:
			from = end + len(nameEnd)
		default:
			to = begin - len(nameEnd)
		}
	}
	return false
}

// secretNamesIn are the values of keys "name" that have one slash, and no colon as those of clusters do. The text is not decoded for them: it has a megabyte, and
// a quote in a text of it is escaped.
func secretNamesIn(text []byte) SecretNames {
	var names [][]byte
	for rest, found := after(text, nameKey); found; rest, found = after(rest, nameKey) {
		value, isText := bytes.CutPrefix(bytes.TrimLeft(rest, ": \t\r\n"), []byte(`"`))
		end := bytes.IndexByte(value, '"')
		if !isText || end < 0 || end > maxSecretName {
			continue
		}
		if name := value[:end]; bytes.Count(name, []byte("/")) == 1 && !bytes.ContainsAny(name, `:\`) {
			names = append(names, name)
		}
	}
	return packSecretNames(names)
}

var nameKey = []byte(`"name"`)

// maxSecretName is the most bytes of a namespace and a name.
const maxSecretName = 63 + 1 + 253

func after(text, sep []byte) (rest []byte, found bool) {
	_, rest, found = bytes.Cut(text, sep)
	return rest, found
}
