// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"iter"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/kvstore"
)

// report is the result of a comparison. Numbers are sorted.
type report struct {
	crdTotal, kvstoreTotal int
	crdOnly, kvstoreOnly   []identity.Number
	misnamed               []string // names that are no numbers, of both
}

// compare compares the numbers of all clusters.
func compare(objects iter.Seq[string], keys []kvstore.Entry) report {
	var r report
	inCRD := map[identity.Number]bool{}
	for name := range objects {
		if n, ok := identity.ParseNumber(name); ok {
			inCRD[n] = true
		} else {
			r.misnamed = append(r.misnamed, name)
		}
	}
	r.crdTotal = len(inCRD)
	for _, e := range keys {
		n, ok := identity.ParseNumber(strings.TrimPrefix(e.Key, kvstore.Folder(kvstore.IdentitiesPrefix)))
		switch {
		case !ok:
			r.misnamed = append(r.misnamed, e.Key)
			continue
		case !inCRD[n]:
			r.kvstoreOnly = append(r.kvstoreOnly, n)
		}
		r.kvstoreTotal++
		delete(inCRD, n)
	}
	for n := range inCRD {
		r.crdOnly = append(r.crdOnly, n)
	}
	slices.Sort(r.crdOnly)
	slices.Sort(r.kvstoreOnly)
	return r
}

func (r report) equal() bool { return len(r.crdOnly)+len(r.kvstoreOnly) == 0 }

// differs reports whether the log has to have a report that follows another one.
func (r report) differs(before report) bool {
	return !slices.Equal(r.crdOnly, before.crdOnly) || !slices.Equal(r.kvstoreOnly, before.kvstoreOnly)
}

// samples are the first numbers, for the log.
func samples(all []identity.Number) []identity.Number { return all[:min(5, len(all))] }
