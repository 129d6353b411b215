// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/runtime/metrics"
)

// Doors of all modules to a server share its rate, and the pause that it asks for; other servers have their own.
func TestDoorsShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		g.scope.budgets = newBudgets()
		first, second := New(g.scope, "ec2", Limits{QPS: 1, Burst: 1}), New(g.scope, "ec2", Limits{QPS: 100, Burst: 100})
		other := New(g.scope, "fjord", Limits{QPS: 1, Burst: 1})
		read := func(d *Door, err error) error {
			return d.Read(t.Context(), func(context.Context) error { return err })
		}
		began := time.Now()
		if err := errors.Join(read(first, nil), read(second, nil), read(other, nil)); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		_ = read(second, Throttled(errors.New("429"), time.Minute))
		if err := read(first, nil); !errors.As(err, new(*ThrottledError)) {
			t.Errorf("during the pause: %v", err)
		}
		time.Sleep(time.Second)
		if err := read(other, nil); err != nil {
			t.Errorf("another server: %v", err)
		}
		time.Sleep(time.Minute)
		if err := read(first, nil); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

type httpError struct{ code int }

func (e httpError) Error() string       { return "an error of a client library" }
func (e httpError) HTTPStatusCode() int { return e.code }

// Calls are counted by operation and response code, as the original does.
func TestAPIMetrics(t *testing.T) {
	g := newGate(t)
	m := NewAPIMetrics("ec2")(metrics.Factory{Namespace: "cilium_operator"})
	d := New(g.scope, "ec2", Limits{}).Measured(m)
	call := give
	call.Operation = "AssignPrivateIpAddresses"
	for _, err := range []error{nil, httpError{400}, status.Error(codes.PermissionDenied, "no administrator"), errors.New("connection refused")} {
		_ = d.Do(why(t.Context()), call, func(context.Context) error { return err })
	}
	_ = d.ReadOperation(t.Context(), "DescribeSubnets", func(context.Context) error { return nil })
	if n := testutil.CollectAndCount(m.Duration, "cilium_operator_ec2_api_duration_seconds"); n != 5 {
		t.Errorf("%d series", n)
	}
	for _, labels := range [][]string{
		{"AssignPrivateIpAddresses", "OK"}, {"AssignPrivateIpAddresses", "400 Bad Request"}, {"AssignPrivateIpAddresses", "PermissionDenied"},
		{"AssignPrivateIpAddresses", "Failed"}, {"DescribeSubnets", "OK"},
	} {
		if !m.Duration.DeleteLabelValues(labels...) {
			t.Errorf("no series of %q", labels)
		}
	}
	if n := testutil.CollectAndCount(m.RateLimit, "cilium_operator_ec2_api_rate_limit_duration_seconds"); n != 2 {
		t.Errorf("%d series of waits", n)
	}
}
