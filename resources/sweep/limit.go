// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import "fmt"

// minForLimit deletes are plausible whatever the share: of three objects, two may go.
const minForLimit = 10

// Implausible reports whether so many deletes are more than is believed.
func Implausible(due, total int, maxShare float64) bool {
	return due > minForLimit && float64(due) > maxShare*float64(total)
}

// apart leaves out of too many candidates those of the namespace that has most of them. It reports whether the rest is to be believed by itself, as if there
// were nothing of that namespace.
func apart[K comparable, T any](due []Candidate[K, T], total int, maxShare float64, namespaceOf func(T) string) (rest []Candidate[K, T], namespace string, believed bool) {
	if namespaceOf == nil {
		return nil, "", false
	}
	count := map[string]int{}
	for _, c := range due {
		of := namespaceOf(c.Object)
		if count[of]++; of != "" && (namespace == "" || count[of] > count[namespace] || count[of] == count[namespace] && of < namespace) {
			namespace = of
		}
	}
	if namespace == "" {
		return nil, "", false
	}
	for _, c := range due {
		if namespaceOf(c.Object) != namespace {
			rest = append(rest, c)
		}
	}
	return rest, namespace, float64(len(rest)) <= maxShare*float64(total-count[namespace])
}

// limit returns the candidates that are to be believed, and what is wrong with the others, nil if there are none: all of them, or those of one namespace.
func (s *Sweep[K, T]) limit(due []Candidate[K, T], total int) ([]Candidate[K, T], error) {
	if s.spec.NoSafetyLimit || !Implausible(len(due), total, s.deps.MaxShare) {
		return due, nil
	}
	rest, namespace, believed := apart(due, total, s.deps.MaxShare, s.spec.Namespace)
	if !believed {
		s.markProcessed(due...)
		return nil, &limitError{due: len(due), total: total}
	}
	for _, c := range due {
		if s.spec.Namespace(c.Object) == namespace {
			s.markProcessed(c)
		}
	}
	return rest, &limitError{len(due) - len(rest), total, namespace}
}

// limitError is a sweep that would have deleted too much, of a namespace or in all.
type limitError struct {
	due, total int
	namespace  string
}

func (e *limitError) Error() string {
	where := ""
	if e.namespace != "" {
		where = " in the namespace " + e.namespace + ", which has them all"
	}
	return fmt.Sprintf("%d of %d objects look like garbage, which is hard to believe: nothing is deleted%s; if it is right, set --%s to 1 until they are gone", e.due, e.total, where, "sweep-max-share")
}

func isLimited(err error) bool {
	_, ok := err.(*limitError)
	return ok
}
