// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

func factsFor(method, target, userAgent string) facts {
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set("User-Agent", userAgent)
	return factsOf(r)
}

func TestMatch(t *testing.T) {
	var (
		listPods    = factsFor("GET", "/api/v1/namespaces/a/pods", "skep/1 (ipam)")
		watchPods   = factsFor("GET", "/api/v1/pods?watch=1&resourceVersion=5", "")
		putStatus   = factsFor("PUT", "/api/v1/namespaces/a/pods/x/status", "")
		getNode     = factsFor("GET", "/apis/cilium.io/v2/ciliumnodes/n1", "")
		watchNode   = factsFor("GET", "/apis/cilium.io/v2/ciliumnodes?watch=true&fieldSelector=metadata.name%3Dn1", "")
		health      = factsFor("GET", "/healthz", "")
		deleteNodes = factsFor("DELETE", "/apis/cilium.io/v2/ciliumnodes", "")
	)
	for name, tc := range map[string]struct {
		match control.Match
		facts facts
		want  bool
	}{
		"everything":               {control.Match{}, health, true},
		"verb":                     {control.Match{Verbs: []string{"get", "list"}}, listPods, true},
		"other verb":               {control.Match{Verbs: []string{"list"}}, watchPods, false},
		"watch":                    {control.Match{Verbs: []string{"watch"}}, watchPods, true},
		"delete collection":        {control.Match{Verbs: []string{"deletecollection"}}, deleteNodes, true},
		"resource":                 {control.Match{Resources: []string{"pods"}}, listPods, true},
		"resource, no subresource": {control.Match{Resources: []string{"pods"}}, putStatus, false},
		"subresource":              {control.Match{Resources: []string{"pods/status"}}, putStatus, true},
		"any subresource":          {control.Match{Resources: []string{"*/status"}}, putStatus, true},
		"core group":               {control.Match{Groups: []string{"core"}}, listPods, true},
		"core is no path":          {control.Match{Groups: []string{"core"}}, health, false},
		"group":                    {control.Match{Groups: []string{"cilium.io"}}, getNode, true},
		"namespace":                {control.Match{Namespaces: []string{"a"}}, listPods, true},
		"other namespace":          {control.Match{Namespaces: []string{"b"}}, listPods, false},
		"name":                     {control.Match{Names: []string{"n1"}}, getNode, true},
		"name by field selector":   {control.Match{Names: []string{"n1"}}, watchNode, true},
		"path":                     {control.Match{PathPrefixes: []string{"/health"}}, health, true},
		"user agent":               {control.Match{UserAgent: "(ipam)"}, listPods, true},
		"other user agent":         {control.Match{UserAgent: "(ipam)"}, getNode, false},
		"all parts must match":     {control.Match{Verbs: []string{"list"}, Groups: []string{"cilium.io"}}, listPods, false},
	} {
		if got := tc.facts.matches(tc.match); got != tc.want {
			t.Errorf("%s: matches is %v, want %v", name, got, tc.want)
		}
	}
}

func TestRuleFollowsItsPlan(t *testing.T) {
	set := newRuleSet(1)
	ask := control.Rule{Skip: 2, Every: 2, Times: 3, Status: &control.Status{Code: http.StatusServiceUnavailable}}
	if _, err := set.add(ask); err != nil {
		t.Fatal(err)
	}
	var fired []int
	for i := range 10 {
		if set.decide(facts{}).status != nil {
			fired = append(fired, i)
		}
	}
	if !slices.Equal(fired, []int{2, 4, 6}) || set.list()[0].Hits != 3 {
		t.Fatalf("fired on %v with %d hits, want 2, 4, 6", fired, set.list()[0].Hits)
	}
}

func TestFirstAnswerWinsAndDelaysAddUp(t *testing.T) {
	set := newRuleSet(1)
	for _, r := range []control.Rule{
		{ID: "slow", Delay: &control.Delay{For: time.Second}},
		{ID: "slower", Delay: &control.Delay{For: time.Minute}},
		{ID: "elsewhere", Match: control.Match{Resources: []string{"pods"}}, Status: &control.Status{Code: 500}},
		{ID: "busy", Status: &control.Status{Code: 429}},
		{ID: "late", Status: &control.Status{Code: 500}},
	} {
		if _, err := set.add(r); err != nil {
			t.Fatal(err)
		}
	}
	v := set.decide(facts{})
	if !slices.Equal(v.ids, []string{"slow", "slower", "busy"}) || v.status.Code != 429 || len(v.delays) != 2 {
		t.Fatalf("verdict is %+v", v)
	}
	hits := map[string]int{}
	for _, r := range set.list() {
		hits[r.ID] = r.Hits
	}
	if hits["late"] != 0 || hits["elsewhere"] != 0 || hits["busy"] != 1 {
		t.Fatalf("hits are %v", hits)
	}
}

func TestRulesThatMeanNothingAreRefused(t *testing.T) {
	status := &control.Status{Code: 500}
	for name, ask := range map[string]control.Rule{
		"no action":          {},
		"two actions":        {Status: status, LoseAnswer: &control.LoseAnswer{}},
		"success":            {Status: &control.Status{Code: 200}},
		"unknown verb":       {Status: status, Match: control.Match{Verbs: []string{"LIST"}}},
		"empty group":        {Status: status, Match: control.Match{Groups: []string{""}}},
		"probability":        {Status: status, Probability: 1.5},
		"cutting for ever":   {CutWatch: &control.CutWatch{}},
		"spoilt unknown":     {Spoil: &control.Spoil{Answers: []control.SpoiltAnswer{"rotten"}}},
		"spoilt sometime":    {Spoil: &control.Spoil{When: "sometime"}},
		"hold with a chance": {HoldWatch: &control.HoldWatch{}, Probability: 0.5},
		"duplicate":          {ID: "there", Status: status},
	} {
		set := newRuleSet(1)
		if _, err := set.add(control.Rule{ID: "there", Status: status}); err != nil {
			t.Fatal(err)
		}
		if _, err := set.add(ask); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
