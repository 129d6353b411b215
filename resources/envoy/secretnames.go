// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"iter"
	"slices"
	"strings"
)

// SecretNames are names that may be those of secrets, as agents offer them: namespace/name. Sorted, each once. They are kept in one text: a tenant can write
// tens of thousands, and each of them alone would need twice the memory that it has in etcd (K8S-24).
type SecretNames struct {
	packed string // parted by nameEnd
	isCut  bool
}

// mostSecretNames is how many names are kept of a configuration. A Gateway has places for 4,096 certificates, and so has each of its ListenerSets; those of a
// thousand are copied for each (SEC-16).
const mostSecretNames = 10_000

// nameEnd parts names: it is in none.
const nameEnd = `"`

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
	isCut := len(names) > mostSecretNames
	if isCut {
		names = names[:mostSecretNames]
	}
	return SecretNames{string(bytes.Join(names, []byte(nameEnd))), isCut}
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
func (n SecretNames) IsCut() bool { return n.isCut }

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
