// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// shelf is an API server in outline that has one kind of objects.
type shelf struct {
	mu      sync.Mutex
	version int
	objects map[string]string // the value of each, by name
	asked   []string          // method and path, in order
}

const shelfPath = "/apis/cilium.io/v2/ciliumnodes"

func newShelf(t *testing.T) (*rig, *shelf) {
	s := &shelf{version: 7, objects: map[string]string{"n": "old"}}
	r := &rig{t: t}
	r.start(s.serve)
	return r, s
}

func (s *shelf) object(name string) map[string]any {
	return map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "spec": map[string]any{"value": s.objects[name], "large": int64(1)<<62 + 1},
		"metadata": map[string]any{"name": name, "uid": "uid-of-" + name, "resourceVersion": fmt.Sprint(s.version)},
	}
}

func (s *shelf) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	body, _ := io.ReadAll(r.Body)
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, shelfPath), "/")
	answer := func(code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}
	switch {
	case r.Header.Get("Accept-Encoding") != "":
		answer(http.StatusInternalServerError, "the answer may be compressed")
	case r.Method == http.MethodPost:
		s.version, s.objects["made"] = s.version+1, string(body)
		answer(http.StatusCreated, s.object("made"))
	case name == "":
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			items = append(items, s.object(name))
		}
		answer(http.StatusOK, map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumNodeList", "metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)}, "items": items})
	case s.objects[name] == "":
		answer(http.StatusNotFound, map[string]any{"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": "Failure", "code": 404})
	case r.Method == http.MethodPut:
		s.version, s.objects[name] = s.version+1, string(body)
		answer(http.StatusOK, s.object(name))
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		answer(http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": "Success", "details": map[string]any{"name": name, "uid": "uid-of-" + name}})
	default:
		answer(http.StatusOK, s.object(name))
	}
}

// spoiltAnswer is what a client gets.
type spoiltAnswer struct {
	code                        int
	contentType, location, body string
	retryAfter                  string
}

// ask sends a request that meets a rule, and follows no redirect.
func (r *rig) askSpoilt(method, path, body string, how control.Spoil) spoiltAnswer {
	r.t.Helper()
	rule := r.rule(control.Rule{Spoil: &how})
	defer r.proxy.RemoveRule(rule.ID)
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+r.proxy.Address()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	client := *r.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return spoiltAnswer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Location"), string(text), resp.Header.Get("Retry-After")}
}

// each kind of answer, to an update that the server has done.
func TestSpoiltAnswers(t *testing.T) {
	const (
		asJSON = "application/json"
		asText = "text/plain; charset=utf-8"
		asHTML = "text/html; charset=utf-8"
	)
	right := `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"n","resourceVersion":"8","uid":"uid-of-n"},"spec":{"large":4611686018427387905,"value":"new"}}`
	version := func(v string) string {
		return strings.Replace(right, `"resourceVersion":"8"`, fmt.Sprintf(`"resourceVersion":%q`, v), 1)
	}
	otherUIDBody := strings.Replace(right, "uid-of-n", otherUID, 1)
	for kind, want := range map[control.SpoiltAnswer]spoiltAnswer{
		control.SpoilHTML:          {code: 200, contentType: asHTML, body: "<h1>Please sign in</h1>"},
		control.SpoilEmpty:         {code: 200, contentType: asJSON},
		control.SpoilNull:          {code: 200, contentType: asJSON, body: "null\n"},
		control.SpoilList:          {code: 200, contentType: asJSON, body: `{"apiVersion":"cilium.io/v2","items":[` + right + `],"kind":"CiliumNodeList","metadata":{"resourceVersion":"8"}}`},
		control.SpoilTruncated:     {code: 200, contentType: asJSON, body: right[:(len(right)+1)/2]},
		control.SpoilContentType:   {code: 200, contentType: asText, body: right + "\n"},
		control.SpoilProtobuf:      {code: 200, contentType: "application/vnd.kubernetes.protobuf", body: right + "\n"},
		control.SpoilStatusSuccess: {code: 200, contentType: asJSON, body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`},
		control.SpoilStatusFailure: {code: 200, contentType: asJSON, body: `"status":"Failure"`},
		control.SpoilOtherObject:   {code: 200, contentType: asJSON, body: strings.Replace(otherUIDBody, `"name":"n"`, `"name":"spoilt"`, 1)},
		control.SpoilOtherUID:      {code: 200, contentType: asJSON, body: otherUIDBody},
		control.SpoilVersionZero:   {code: 200, contentType: asJSON, body: version("0")},
		control.SpoilVersionEmpty:  {code: 200, contentType: asJSON, body: version("")},
		control.SpoilVersionText:   {code: 200, contentType: asJSON, body: version("abc")},
		control.SpoilVersionHuge:   {code: 200, contentType: asJSON, body: version("18446744073709551616")},
		control.SpoilNoContent:     {code: 204},
		control.SpoilRedirect:      {code: 302, location: "/.spoilt/page"},
		control.SpoilRedirectLoop:  {code: 307, location: "/.spoilt/loop"},
		control.SpoilUnauthorized:  {code: 401, contentType: asJSON, body: `"reason":"Unauthorized"`},
		control.SpoilForbiddenText: {code: 403, contentType: asText, body: "access denied\n"},
		control.SpoilNotFoundText:  {code: 404, contentType: asText, body: "404 page not found\n"},
		control.SpoilConflictText:  {code: 409, contentType: asText, body: "conflict\n"},
		control.SpoilGone:          {code: 410, contentType: asJSON, body: `"reason":"Expired"`},
		control.SpoilThrottled:     {code: 429, contentType: asJSON, body: `"reason":"TooManyRequests"`, retryAfter: "1"},
		control.SpoilThrottledHour: {code: 429, contentType: asJSON, body: `"retryAfterSeconds":3600`, retryAfter: "3600"},
		control.SpoilErrorHTML:     {code: 500, contentType: asHTML, body: "<h1>Please sign in</h1>"},
		control.SpoilTooLarge:      {code: 504, contentType: asJSON, body: `{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}`, retryAfter: "1"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			r, s := newShelf(t)
			got := r.askSpoilt(http.MethodPut, shelfPath+"/n", "new", control.Spoil{Answers: []control.SpoiltAnswer{kind}, When: control.SpoilAfter})
			part := want.body
			exact := strings.HasPrefix(part, `{"apiVersion`) || part == ""
			if exact && got.body != part || !strings.Contains(got.body, part) {
				t.Errorf("the body is\n%s\nwant\n%s", got.body, part)
			}
			if got.body = part; got != want {
				t.Errorf("the answer is %+v, want %+v", got, want)
			}
			if s.objects["n"] != "new" {
				t.Error("the server has not done it")
			}
			if seen := r.proxy.Requests(0); len(seen) != 1 || seen[0].Spoilt != kind || seen[0].Status != want.code || !seen[0].Done {
				t.Errorf("recorded as %+v", seen)
			}
		})
	}
	if n := len(control.SpoiltAnswers()); n < 21 {
		t.Errorf("there are %d kinds", n)
	}
}

// Every kind is tested above: a kind that is new fails here.
func TestAllKindsAreDealt(t *testing.T) {
	r, _ := newShelf(t)
	rule := r.rule(control.Rule{Spoil: &control.Spoil{}})
	client := *r.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	all := len(newDeck(control.Spoil{}))
	for range 2 * all {
		resp, err := client.Get("https://" + r.proxy.Address() + shelfPath + "/n")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	count := map[control.SpoiltAnswer]int{}
	var row []control.SpoiltAnswer
	for _, seen := range r.proxy.Requests(0) {
		count[seen.Spoilt]++
		row = append(row, seen.Spoilt)
	}
	for _, kind := range control.SpoiltAnswers() {
		if count[kind] != 4 {
			t.Errorf("%s came %d times in two decks of %d", kind, count[kind], all)
		}
	}
	if slices.Equal(row[:all], row[all:]) {
		t.Error("the second deck is as the first")
	}
	if hits := r.proxy.Rules()[0].Hits; hits != 2*all || r.proxy.Rules()[0].ID != rule.ID {
		t.Errorf("%d hits", hits)
	}
}

// Instead of the server's answer: nothing is done, and an answer with an object has what
// is stored.
func TestSpoiltInstead(t *testing.T) {
	version := control.Spoil{Answers: []control.SpoiltAnswer{control.SpoilVersionText}, When: control.SpoilInstead}
	for _, test := range []struct {
		method, path, body string
		want               []string
		asks               []string
	}{
		{http.MethodPut, shelfPath + "/n", "new", []string{`"value":"old"`, `"resourceVersion":"abc"`}, []string{"GET " + shelfPath + "/n"}},
		{http.MethodPatch, shelfPath + "/n", "new", []string{`"value":"old"`, `"resourceVersion":"abc"`}, []string{"GET " + shelfPath + "/n"}},
		{http.MethodDelete, shelfPath + "/n", "", []string{`"value":"old"`, `"resourceVersion":"abc"`}, []string{"GET " + shelfPath + "/n"}},
		{http.MethodPut, shelfPath + "/none", "new", []string{`"code":404`}, []string{"GET " + shelfPath + "/none"}},
		{http.MethodPost, shelfPath, `{"kind":"CiliumNode","metadata":{"name":"made"}}`, []string{`"name":"made"`, `"resourceVersion":"abc"`}, nil},
		{http.MethodPost, shelfPath, "k8s\x00", []string{`"kind":"Spoilt"`, `"resourceVersion":"abc"`}, nil},
		{http.MethodGet, shelfPath + "/n", "", []string{`"value":"old"`, `"resourceVersion":"abc"`}, []string{"GET " + shelfPath + "/n"}},
	} {
		t.Run(test.method+" "+test.body, func(t *testing.T) {
			r, s := newShelf(t)
			got := r.askSpoilt(test.method, test.path, test.body, version)
			for _, part := range test.want {
				if !strings.Contains(got.body, part) {
					t.Errorf("got %d %s, want %s", got.code, got.body, part)
				}
			}
			if !slices.Equal(s.asked, test.asks) || s.objects["n"] != "old" || len(s.objects) != 1 {
				t.Errorf("the server was asked %v and has %v", s.asked, s.objects)
			}
		})
	}
}

func TestSpoiltCreateAndDelete(t *testing.T) {
	r, s := newShelf(t)
	other := control.Spoil{Answers: []control.SpoiltAnswer{control.SpoilOtherObject}, When: control.SpoilAfter}
	if got := r.askSpoilt(http.MethodPost, shelfPath, "new", other); got.code != 201 || !strings.Contains(got.body, `"name":"spoilt"`) || s.objects["made"] != "new" {
		t.Errorf("a create is answered with %+v, and the server has %v", got, s.objects)
	}
	if got := r.askSpoilt(http.MethodDelete, shelfPath+"/n", "", other); !strings.Contains(got.body, `"details":{"name":"spoilt","uid":"`+otherUID+`"}`) || s.objects["n"] != "" {
		t.Errorf("a delete is answered with %+v, and the server has %v", got, s.objects)
	}
}

func TestSpoiltListsAndWatches(t *testing.T) {
	r, s := newShelf(t)
	for _, test := range []struct {
		query string
		kind  control.SpoiltAnswer
		want  string
	}{
		{"", control.SpoilVersionHuge, `"metadata":{"resourceVersion":"18446744073709551616"}`},
		{"", control.SpoilOtherObject, `"apiVersion":"spoilt.example.com/v1"`},
		{"", control.SpoilList, `"kind":"CiliumNode","metadata":{"name":"n"`},
		{"", control.SpoilTruncated, `{"apiVersion":`},
		{"?watch=1&resourceVersion=3", control.SpoilVersionZero, `{"object":{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"resourceVersion":"0"}},"type":"BOOKMARK"}` + "\n"},
		{"?watch=1", control.SpoilOtherUID, `{"object":{"apiVersion":"spoilt.example.com/v1","kind":"Spoilt","metadata":{"resourceVersion":"1"}},"type":"BOOKMARK"}` + "\n"},
		{"?watch=1&resourceVersion=3", control.SpoilContentType, `{"object":{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"resourceVersion":"3"}},"type":"BOOKMARK"}` + "\n"},
		{"?watch=1", control.SpoilHTML, "<h1>"},
		{"?watch=1", control.SpoilTooLarge, "Too large resource version"},
	} {
		for _, when := range []control.SpoilWhen{control.SpoilInstead, control.SpoilAfter} {
			got := r.askSpoilt(http.MethodGet, shelfPath+test.query, "", control.Spoil{Answers: []control.SpoiltAnswer{test.kind}, When: when})
			if !strings.Contains(got.body, test.want) {
				t.Errorf("%s, %s %s: %d %s, want %s", test.query, test.kind, when, got.code, got.body, test.want)
			}
		}
	}
	if s.objects["n"] != "old" {
		t.Error("the server was written to")
	}
}

// A client that follows redirects gets a page, or never comes to an end.
func TestSpoiltRedirects(t *testing.T) {
	r, s := newShelf(t)
	r.rule(control.Rule{Spoil: &control.Spoil{Answers: []control.SpoiltAnswer{control.SpoilRedirect}, When: control.SpoilInstead}, Times: 1})
	r.rule(control.Rule{Spoil: &control.Spoil{Answers: []control.SpoiltAnswer{control.SpoilRedirectLoop}, When: control.SpoilInstead}, Times: 1})
	resp, err := r.request(http.MethodPut, shelfPath+"/n", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Errorf("the redirect leads to %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	if resp, err := r.request(http.MethodPut, shelfPath+"/n", nil); err == nil {
		resp.Body.Close()
		t.Errorf("the loop ends with %s", resp.Status)
	} else if !strings.Contains(err.Error(), "stopped after 10 redirects") {
		t.Errorf("the loop ends with %v", err)
	}
	if len(s.asked) > 0 {
		t.Errorf("the server was asked %v", s.asked)
	}
}

func TestSpoiltWhileTheServerIsAway(t *testing.T) {
	r, _ := newShelf(t)
	r.get(shelfPath)
	r.server.Close()
	r.rule(control.Rule{Spoil: &control.Spoil{Answers: []control.SpoiltAnswer{control.SpoilNull}, When: control.SpoilAfter}})
	resp, err := r.request(http.MethodPut, shelfPath+"/n", nil)
	if err == nil {
		resp.Body.Close()
		t.Errorf("the client got %s from a server that is away", resp.Status)
	}
}
