// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// subject is a provider without the engine, its cloud and what it asks for there.
type subject struct {
	*provider
	t     *testing.T
	ec2   *ec2test.Cloud
	log   *logtest.Buffer
	calls *requests
}

func newSubject(t *testing.T, config Config, c *ec2test.Cloud) *subject {
	t.Helper()
	s := &subject{t: t, ec2: c, log: &logtest.Buffer{}, calls: record(c)}
	serve(t, c)
	s.provider = providerOf(t, config, nil)
	s.provider.log = slog.New(slog.NewTextHandler(s.log, nil))
	return s
}

func (s *subject) ctx() context.Context {
	return k8s.WithCause(s.t.Context(), &k8s.Cause{Rule: "test"})
}

func (s *subject) read() *cloudipam.State {
	s.t.Helper()
	state, err := s.Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// one reads i-1 alone.
func (s *subject) one() *cloudipam.Instance {
	s.t.Helper()
	all, err := s.ReadInstances(s.t.Context(), []string{"i-1"})
	if err != nil || all["i-1"] == nil {
		s.t.Fatalf("reading i-1: %v, %v", all, err)
	}
	return all["i-1"]
}

// create attaches an interface to i-1, and returns its subnet.
func (s *subject) create(count int, edit func(*v2.CiliumNodeSpec)) (subnet string) {
	s.t.Helper()
	state := s.read()
	made, err := s.CreateInterface(s.ctx(), nodeOf("i-1", edit), state.Instances["i-1"], state.Subnets, count)
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Subnet
}

// assign adds addresses to i-1, and returns how many it has then.
func (s *subject) assign(count int, edit func(*v2.CiliumNodeSpec)) int {
	s.t.Helper()
	state, n := s.read(), nodeOf("i-1", edit)
	to, ok := s.FreeInterface(n, state.Instances["i-1"], state.Subnets)
	if !ok {
		s.t.Fatal("no interface has slots")
	}
	if err := s.Assign(s.ctx(), n, state.Instances["i-1"], to, count); err != nil {
		s.t.Fatal(err)
	}
	return len(s.Addresses(n, s.one()))
}

// requests are those that a cloud has got, without the ones that it refused for their rate.
type requests struct {
	mu   sync.Mutex
	list []map[string]string // parameters by name
}

// record keeps the requests of a cloud, whose Fault stays.
func record(c *ec2test.Cloud) *requests {
	r, fault := &requests{}, c.Fault
	c.Fault = func(operation string, parameters map[string]string) (f ec2test.Fault) {
		r.mu.Lock()
		r.list = append(r.list, maps.Clone(parameters))
		r.mu.Unlock()
		if fault != nil {
			f = fault(operation, parameters)
		}
		return f
	}
	return r
}

// of are the requests of an operation.
func (r *requests) of(operation string) (all []map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, parameters := range r.list {
		if parameters["Action"] == operation {
			all = append(all, parameters)
		}
	}
	return all
}

// all are the requests of all operations.
func (r *requests) all() []map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]map[string]string(nil), r.list...)
}
