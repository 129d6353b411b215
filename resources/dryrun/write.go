// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"github.com/skep-operator/skep/resources/explain"
)

// Write is what an operator that leads would send to a server.
type Write struct {
	Module string
	// Store is "etcd", the name of another server, or nothing for the API server.
	Store string
	// Verb is create, update, patch or delete; put or delete for a kvstore.
	Verb string
	// Resource is as in ciliumnodes.cilium.io, or the prefix of a kvstore's keys.
	Resource    string
	Namespace   string
	Name        string
	Subresource string
	// Changes are the fields that change in an existing object.
	Changes []Change
	// Request is the body of the request, without secrets.
	Request json.RawMessage

	cause *explain.Cause // nil: unknown
	due   time.Duration  // from the beginning
	every time.Duration  // it recurs for ever; 0 for one that does not
}

// identity distinguishes writes: two with the same one are one write repeated.
type identity struct {
	module, rule, verb, resource, namespace, name, subresource string
}

func (w *Write) identity() identity {
	return identity{w.Module, w.rule(), w.Verb, w.Resource, w.Namespace, w.Name, w.Subresource}
}

func (w *Write) rule() string {
	if w.cause == nil {
		return ""
	}
	return w.cause.Rule
}

// Record records a planned write, with the cause in the context. One that is repeated by a pass which nothing but
// time triggered recurs; it is recorded once.
func (p *Plan) Record(ctx context.Context, w Write) {
	p.Moved()
	w.cause = explain.CauseOf(ctx)
	pass, _ := ctx.Value(passKey{}).(*Pass)
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.known[w.identity()]; first != nil && pass != nil && pass.Again > 0 {
		first.every = pass.Again
		pass.recurred.Store(true)
		return
	}
	w.due = p.ahead
	w.Request = withoutNow(w.Request, p.began)
	for i := range w.Changes {
		w.Changes[i].To = withoutNow(w.Changes[i].To, p.began)
	}
	p.writes = append(p.writes, &w)
	if id := w.identity(); p.known[id] == nil {
		p.known[id] = &w
	}
	p.generation.Add(1)
}

var timePattern = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"`)

// withoutNow replaces the times of writes in a request: they are other ones in
// the next plan.
func withoutNow(text json.RawMessage, began time.Time) json.RawMessage {
	return timePattern.ReplaceAllFunc(text, func(quoted []byte) []byte {
		at, err := time.Parse(time.RFC3339, string(quoted[1:len(quoted)-1]))
		if err != nil || at.Before(began) {
			return quoted
		}
		return []byte(`"(time of the write)"`)
	})
}
