// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Whatever labels, ServiceAccounts, the server and the agent do, in the end each ServiceAccount of an enrolled namespace has
// its entry, no other has, and entries of others are as they were.
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
	foreign := []spiretest.Entry{s.Own(300), s.OfServiceAccount("a", "0")}
	foreign[1].ParentID.Path = "/spire/server"
	for _, e := range foreign {
		s.Put(e)
	}
	enrolled, accounts := map[string]bool{}, map[string]bool{}
	d.lead()
	address := s.Address()
	refused := map[string]bool{}
	methods := []string{"ListEntries", "BatchCreateEntry", "BatchDeleteEntry"}
	failures := []codes.Code{codes.Internal, codes.Unavailable, codes.PermissionDenied}
	for step := range 80 {
		namespace := []string{"b", "c", "d"}[r.IntN(3)]
		account := fmt.Sprint(namespace, "/", r.IntN(8))
		switch r.IntN(20) {
		case 0:
			s.Fail(methods[r.IntN(len(methods))], failures[r.IntN(len(failures))])
		case 1:
			for _, m := range methods {
				s.Fail(m, codes.OK)
			}
		case 2:
			path := "/ns/" + strings.Replace(account, "/", "/sa/", 1)
			refused[path] = true
			s.Refuse(path, codes.Internal)
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
			s.Put(s.OfServiceAccount(namespace, fmt.Sprint("stale-", step))) // one that comes back is another operator's (SPIRE-19)
		case 7, 8, 9:
			d.enrol(namespace)
			enrolled[namespace] = true
		case 10, 11:
			d.disenrol(namespace)
			delete(enrolled, namespace)
		case 12, 13, 14:
			d.delete(account)
			delete(accounts, account)
		default:
			d.create(account)
			accounts[account] = true
		}
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond) // a pace, not a wait
	}
	for _, m := range methods {
		s.Fail(m, codes.OK)
	}
	for path := range refused {
		s.Refuse(path, codes.OK)
	}
	var want []string
	for account := range accounts {
		if namespace, _, _ := strings.Cut(account, "/"); enrolled[namespace] {
			want = append(want, account)
		}
	}
	slices.Sort(want)
	d.eventually(fmt.Sprint("the entries are those of ", want), func() bool { return hasEntries(s, want) && s.Len() == len(want)+len(foreign) })
	for _, e := range foreign {
		if got := s.Entries()[e.SPIFFEID.Path]; got.ParentID != e.ParentID {
			t.Errorf("the entry of another is %v", got)
		}
	}
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}
