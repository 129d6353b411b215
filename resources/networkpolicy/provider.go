// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/skep-operator/skep/runtime/cell"
)

// Provider looks up the members of groups that a cloud keeps. The cell of a cloud offers one:
//
//	cell.Provide(func(c *client) networkpolicy.ProviderOut { return networkpolicy.ProviderOut{Provider: c} })
//
// It is safe for concurrent use.
//
//   - Name is the field of a group that the provider serves, such as aws.
//   - Addresses are those of all members, in any order. A group without members has none, which is no error: the rule then
//     selects no peer. What cannot be known for certain is an error.
//   - group is the value of the field as JSON. Addresses returns an error if it cannot be decoded.
//   - Calls for one group are never concurrent. The context ends after a minute.
//   - Addresses changes nothing.
type Provider interface {
	Name() string
	Addresses(ctx context.Context, group json.RawMessage) ([]netip.Addr, error)
}

// ProviderOut offers a provider.
type ProviderOut struct {
	cell.Out

	Provider Provider `group:"policy group providers"`
}
