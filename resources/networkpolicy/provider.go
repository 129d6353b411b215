// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"context"
	"encoding/json"
	"errors"
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
//   - ErrTooManyAddresses is for a group with more addresses than a policy has place for, some 50,000 (DERIV-27): it is not asked for again in a refresh.
type Provider interface {
	Name() string
	Addresses(ctx context.Context, group json.RawMessage) ([]netip.Addr, error)
}

// ErrTooManyAddresses is what a Provider, or what asks it, returns for groups of more than 50,000 addresses. It is not an answer that is too large to be
// read, which is any other error.
var ErrTooManyAddresses = errors.New("the groups have too many addresses")

// ProviderOut offers a provider.
type ProviderOut struct {
	cell.Out

	Provider Provider `group:"policy group providers"`
}
