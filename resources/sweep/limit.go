// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// minForLimit deletes are plausible whatever the share: of three objects, two may go.
const minForLimit = 10

// Implausible reports whether so many deletes are more than is believed.
func Implausible(due, total int, maxShare float64) bool {
	return due > minForLimit && float64(due) > maxShare*float64(total)
}

const (
	// maxApart is how many namespaces are left out of what is believed.
	maxApart = 5
	// minRest of all objects, one in so many, are not among those that are left out of several namespaces.
	minRest = 10
)

// apart leaves out of too many candidates those of the namespaces that have most of them: as few namespaces as it needs for the rest to be believed by itself,
// as if there were nothing of those. Nothing is believed if that needs too many namespaces, or leaves out nearly all of several ones, or if none of the
// objects would stay, as in a view that is empty.
func apart[K comparable, T any](due []Candidate[K, T], total int, maxShare float64, namespaceOf func(T) string) (rest []Candidate[K, T], namespaces []string, believed bool) {
	if namespaceOf == nil {
		return nil, nil, false
	}
	count := map[string]int{}
	for _, c := range due {
		count[namespaceOf(c.Object)]++
	}
	left, living := len(due), total-len(due)
	delete(count, "")
	order := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	for _, namespace := range order[:min(len(order), maxApart)] {
		namespaces, left = append(namespaces, namespace), left-count[namespace]
		if len(namespaces) > 1 && minRest*(living+left) < total {
			break
		}
		if believed = living > 0 && float64(left) <= maxShare*float64(living+left); believed {
			break
		}
	}
	if !believed {
		return nil, nil, false
	}
	for _, c := range due {
		if !slices.Contains(namespaces, namespaceOf(c.Object)) {
			rest = append(rest, c)
		}
	}
	return rest, namespaces, true
}

// limit returns the candidates that are to be believed, and what is wrong with the others, nil if there are none: all of them, or those of a few namespaces.
func (s *Sweep[K, T]) limit(due []Candidate[K, T], total int) ([]Candidate[K, T], error) {
	if s.spec.NoSafetyLimit || !Implausible(len(due), total, s.deps.MaxShare) {
		return due, nil
	}
	rest, namespaces, believed := apart(due, total, s.deps.MaxShare, s.spec.Namespace)
	if !believed {
		s.markProcessed(due...)
		return nil, &limitError{due: len(due), total: total}
	}
	few := 0
	if s.spec.Few != nil {
		few = s.spec.Few()
	}
	gone := 0
	for _, c := range due {
		switch {
		case !slices.Contains(namespaces, s.spec.Namespace(c.Object)):
		case gone < few:
			gone++
			rest = append(rest, c)
		default:
			s.markProcessed(c)
		}
	}
	return rest, &limitError{len(due) - len(rest) + gone, total, namespaces, gone}
}

// limitError is a sweep that would have deleted too much, of some namespaces or in all.
type limitError struct {
	due, total int
	namespaces []string
	gone       int // of these, all the same
}

func (e *limitError) Error() string {
	where := ""
	switch more := len(e.namespaces) - 1; {
	case more == 0:
		where = " in the namespace " + e.namespaces[0] + ", which has them all"
	case more > 0:
		where = fmt.Sprintf(" in the namespace %s and %d more, which have them all", e.namespaces[0], more)
	}
	if e.gone > 0 {
		return fmt.Sprintf("%d of %d objects look like garbage, which is hard to believe: %d at a time are deleted%s; if it is right, set --%s to 1 until they are gone", e.due, e.total, e.gone, where, "sweep-max-share")
	}
	return fmt.Sprintf("%d of %d objects look like garbage, which is hard to believe: nothing is deleted%s; if it is right, set --%s to 1 until they are gone", e.due, e.total, where, "sweep-max-share")
}

func isLimited(err error) bool {
	_, ok := err.(*limitError)
	return ok
}
