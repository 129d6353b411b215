// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"strings"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// pathPrefix is the path of the SPIFFE IDs of identities, before the number.
const pathPrefix = "/identity/"

// kind is what the entries of identities look like, as agents expect them.
var kind = spire.Kind[identity.Number]{
	Parent: spire.OperatorPath, Path: pathOf, Parse: numberOf,
	Selectors: func(identity.Number) []spire.Selector { return selectors }, Common: selectors,
	Trigger: func(n identity.Number) k8s.Trigger {
		return k8s.Trigger{Kind: ciliumio.Identities.Name(), Name: n.String()}
	},
}

var selectors = []spire.Selector{{Type: "cilium", Value: "mutual-auth"}}

func pathOf(n identity.Number) string { return pathPrefix + n.String() }

// numberOf is the number of the identity in the path of a SPIFFE ID.
func numberOf(path string) (identity.Number, bool) {
	name, ok := strings.CutPrefix(path, pathPrefix)
	if !ok {
		return 0, false
	}
	return identity.ParseNumber(name)
}

// firstNumber is the first number that is not reserved.
const firstNumber = 256

// registered is the number of the CiliumIdentity with a name, which is registered unless it is reserved.
func registered(name string) (identity.Number, bool) {
	n, ok := identity.ParseNumber(name)
	return n, ok && n >= firstNumber
}
