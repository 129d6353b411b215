// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Whatever identities, the server and the agent do, in the end each identity has its entry, no other has, and entries of
// others are as they were.
func TestHistories(t *testing.T) {
	for seed := range seedtest.Seeds(t, 8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func history(t *testing.T, r *rand.Rand) {
	s := spiretest.Start(t, domain)
	s.SetPageSize(1 + r.IntN(10))
	d := newDuty(t, s)
	d.interval = time.Second
	foreign := s.Own(70000)
	s.Put(foreign)
	names := map[string]bool{}
	d.lead()
	address := s.Address()
	refused := map[string]bool{}
	methods := []string{"ListEntries", "BatchCreateEntry", "BatchDeleteEntry"}
	failures := []codes.Code{codes.Internal, codes.Unavailable, codes.PermissionDenied}
	for step := range 60 {
		name := strconv.Itoa(300 + r.IntN(30))
		switch r.IntN(16) {
		case 0:
			s.Fail(methods[r.IntN(len(methods))], failures[r.IntN(len(failures))])
		case 1:
			for _, m := range methods {
				s.Fail(m, codes.OK)
			}
		case 2:
			refused["/identity/"+name] = true
			s.Refuse("/identity/"+name, codes.Internal)
		case 3:
			if r.IntN(2) == 0 {
				s.EndConnections()
				break
			}
			s.Stop()
			s.Listen(address)
		case 4:
			d.restart()
		case 5:
			s.ReplaceAuthority()
		case 6:
			s.Put(s.Own(400 + step)) // one that comes back is another operator's (SPIRE-19)
		case 7, 8, 9, 10:
			d.delete(name)
			delete(names, name)
		default:
			d.create(name)
			names[name] = true
		}
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond) // a pace, not a wait
	}
	for _, m := range methods {
		s.Fail(m, codes.OK)
	}
	for path := range refused {
		s.Refuse(path, codes.OK)
	}
	d.eventually("the entries are those of the identities", func() bool {
		entries := s.Entries()
		for name := range names {
			if _, ok := entries["/identity/"+name]; !ok {
				return false
			}
		}
		return len(entries) == len(names)+1 && s.Len() == len(entries)
	})
	if got := s.Entries()["/identity/70000"]; got.ParentID != foreign.ParentID {
		t.Errorf("the entry of another cluster is %v", got)
	}
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}
