// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"errors"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// The provider of the cloud in memory keeps the promises.
func TestProvider(t *testing.T) { Check(t, subject) }

func subject(*testing.T) Subject {
	c := NewCloud("10.0.0.0/24")
	c.Public = map[string]map[string]string{"203.0.113.7": {"pool": "eip"}}
	var breaker Breaker
	c.Fault = func(string) (f Fault) {
		if breaker.Fails() {
			f.Refuse = errors.New("503 service unavailable")
		}
		return f
	}
	c.Run("i-1")
	c.Run("i-2")
	return Subject{
		New:     func(d *outside.Door) cloudipam.Provider { return NewProvider(c, d) },
		Node:    &cloudipam.Node{Name: "a", InstanceID: "i-1", Spec: &v2.CiliumNodeSpec{InstanceID: "i-1"}, Status: &v2.CiliumNodeStatus{}},
		Other:   "i-2",
		Changes: c.Changes, Breaker: &breaker, Static: map[string]string{"pool": "eip"},
	}
}
