// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// The shapes of webhooks, so that tests need one import.
type (
	Admission      = control.Admission
	AdmissionMatch = control.AdmissionMatch
	Reject         = control.Reject
	Hang           = control.Hang
)

// ActiveAdmission is a webhook at work.
type ActiveAdmission struct {
	process *process
	id      string
}

// Admit makes the API server ask a webhook from now on, until the test ends. Webhooks
// apply to all requests of a cluster, whichever way they come: name the users that are to
// meet them.
func (c *Cluster) Admit(tb testing.TB, rule Admission) *ActiveAdmission {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		rule, err = c.process.control.AddWebhook(ctx, rule)
		return err
	})
	tb.Cleanup(func() {
		ctx, cancel := call()
		defer cancel()
		_ = c.process.control.RemoveWebhook(ctx, rule.ID) // the test may have removed it
	})
	return &ActiveAdmission{c.process, rule.ID}
}

// Remove removes the webhook; a request that it hangs goes on.
func (a *ActiveAdmission) Remove(tb testing.TB) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return a.process.control.RemoveWebhook(ctx, a.id) })
}

// Hits is how often the webhook did what its rule says.
func (a *ActiveAdmission) Hits(tb testing.TB) int {
	tb.Helper()
	var all []Admission
	must(tb, func(ctx context.Context) (err error) {
		all, err = a.process.control.Webhooks(ctx)
		return err
	})
	i := slices.IndexFunc(all, func(rule Admission) bool { return rule.ID == a.id })
	if i < 0 {
		tb.Fatalf("webhook %s has been removed", a.id)
	}
	return all[i].Hits
}
