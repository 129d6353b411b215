// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"path"
	"strings"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/sweep"
)

// id is an identity at one revision: one that is written again is another one.
type id struct {
	number   identity.Number
	revision int64
}

// unused is an identity without users.
type unused struct {
	id
	labels string
	// namesake is set if its labels have users, which use another number. since is the revision at which they were read.
	namesake bool
	since    int64
}

// users are the numbers that nodes use, by label string; 0 is one that cannot be decoded.
type users map[string][]identity.Number

// scanResult is the result of a scan of all identities.
type scanResult struct {
	sweep.Found[id, unused]
	count      int // of all clusters
	foreign    int // have numbers of other clusters
	remembered map[identity.Number]int64
	// Names of keys that cannot be decoded:
	misnamed []string // identities without a number
	unclean  []string // identities with a label string that is none
	large    []string // those of them with one that is not read, for its size
	badUsers []string // users without a number
}

// scan finds the identities of this cluster that have no users. before are the unused ones of the last scan, with their
// revisions: an identity that was written again since is remembered by the next scan at the earliest.
func scan(own identity.Range, identities, values kvstore.Listing, before map[identity.Number]int64) scanResult {
	s := scanResult{count: len(identities.Entries), remembered: map[identity.Number]int64{}}
	used, numbers := s.usersOf(values)
	owners := ownersOf(identities)
	for _, e := range identities.Entries {
		n, ok := numberOf(e)
		switch {
		case !ok:
			s.misnamed = append(s.misnamed, e.Key)
			continue
		case !own.Contains(n):
			s.foreign++
			continue
		}
		if s.Total++; e.IsLarge { // whether it is used is not known
			s.unclean, s.large = append(s.unclean, e.Key), append(s.large, e.Key)
			continue
		}
		labels := owners[n] // one copy
		if labels != string(e.Value) {
			labels = string(e.Value)
		}
		all, known := used.of(labels)
		if !known || !wellFormed(labels) {
			s.unclean = append(s.unclean, e.Key)
		}
		if numbers[n] || !known || usedBy(all, labels, owners) {
			continue
		}
		if revision, seen := before[n]; seen && revision != e.ModRevision {
			continue
		}
		s.remembered[n] = e.ModRevision
		key := id{n, e.ModRevision}
		s.Candidates = append(s.Candidates, sweep.Candidate[id, unused]{
			Key: key, Object: unused{key, labels, len(all) > 0, values.Revision}, Why: "no node uses it",
		})
	}
	return s
}

// numberOf parses the number of an identity, 0 if the name of its key is none.
func numberOf(e kvstore.Entry) (identity.Number, bool) {
	return identity.ParseNumber(strings.TrimPrefix(e.Key, kvstore.Folder(kvstore.IdentitiesPrefix)))
}

// ownersOf returns the label strings of identities, of all clusters.
func ownersOf(identities kvstore.Listing) map[identity.Number]string {
	owners := make(map[identity.Number]string, len(identities.Entries))
	for _, e := range identities.Entries {
		if n, ok := numberOf(e); ok && !e.IsLarge {
			owners[n] = string(e.Value)
		}
	}
	return owners
}

// usersOf returns the users by label string, and all numbers that are used.
func (s *scanResult) usersOf(values kvstore.Listing) (users, map[identity.Number]bool) {
	used, numbers := users{}, map[identity.Number]bool{}
	for _, e := range values.Entries {
		n, ok := identity.ParseNumber(string(e.Value))
		if !ok {
			s.badUsers = append(s.badUsers, e.Key)
		}
		numbers[n] = true
		// Label strings have slashes, names of nodes have none.
		labels := e.Key[:strings.LastIndexByte(e.Key, '/')+1]
		labels = strings.TrimSuffix(strings.TrimPrefix(labels, kvstore.Folder(kvstore.IdentityValuesPrefix)), "/")
		used[labels] = append(used[labels], n)
	}
	delete(numbers, 0)
	return used, numbers
}

// of returns the users of a label string in both forms of the key. known is false if older agents would write them
// elsewhere.
func (u users) of(labels string) (all []identity.Number, known bool) {
	cleaned, ok := clean(labels)
	if !ok {
		return nil, false
	}
	all = u[labels]
	if cleaned != labels {
		all = append(all[:len(all):len(all)], u[cleaned]...)
	}
	return all, true
}

// clean returns a label string as in the keys of agents before 1.18, which clean them as paths.
func clean(labels string) (cleaned string, ok bool) {
	folder := kvstore.Folder(kvstore.IdentityValuesPrefix)
	cleaned, ok = strings.CutPrefix(path.Join(folder, labels)+"/", folder)
	cleaned = strings.TrimSuffix(cleaned, "/")
	return cleaned, ok && (cleaned != "" || strings.Trim(labels, "/") == "")
}

// usedBy reports whether one of the users of a label string may use an identity that is not their number: it cannot be
// decoded, or has no identity with these labels.
func usedBy(all []identity.Number, labels string, owners map[identity.Number]string) bool {
	for _, n := range all {
		if owner, exists := owners[n]; !exists || owner != labels {
			return true
		}
	}
	return false
}

// wellFormed reports whether a label string is one: source:key=value; once or more.
func wellFormed(labels string) bool {
	rest, ok := strings.CutSuffix(labels, ";")
	for label := range strings.SplitSeq(rest, ";") {
		source, rest, _ := strings.Cut(label, ":")
		key, _, hasValue := strings.Cut(rest, "=")
		ok = ok && source != "" && key != "" && hasValue
	}
	return ok
}

// removal deletes an identity if it was not written since, and has no users still. Users of another number with the same
// labels must not have been written since they were read.
func (u unused) removal() kvstore.Removal {
	key := kvstore.Key(kvstore.IdentitiesPrefix, u.number.String())
	r := kvstore.Removal{Key: key, Guards: []kvstore.Guard{kvstore.Unchanged(kvstore.Entry{Key: key, ModRevision: u.revision})}}
	none := kvstore.NoneUnder
	if u.namesake {
		none = func(prefix string) kvstore.Guard { return kvstore.NoneSince(prefix, u.since) }
	}
	r.Guards = append(r.Guards, none(kvstore.Folder(kvstore.IdentityValuesPrefix, u.labels)))
	if cleaned, ok := clean(u.labels); ok && cleaned != "" && cleaned != u.labels {
		r.Guards = append(r.Guards, none(kvstore.Folder(kvstore.IdentityValuesPrefix, cleaned)))
	}
	return r
}
