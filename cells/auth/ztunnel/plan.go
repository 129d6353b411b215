// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// account is the path of the SPIFFE ID of a service account: /ns/<namespace>/sa/<name>.
type account string

const (
	namespacePart = "/ns/"
	namePart      = "/sa/"
)

// accountOf is the account of a ServiceAccount. One whose namespace or name cannot be a part of a path has none.
func accountOf(key slim.Key) (account, bool) {
	if spiffeid.ValidatePathSegment(key.Namespace) != nil || spiffeid.ValidatePathSegment(key.Name) != nil {
		return "", false
	}
	return account(namespacePart + key.Namespace + namePart + key.Name), true
}

// parse is the account with a path, which has the form of accountOf and no other.
func parse(path string) (account, bool) {
	a, ok := accountOf(account(path).key())
	return a, ok && string(a) == path
}

// key is the ServiceAccount of an account.
func (a account) key() slim.Key {
	both, _ := strings.CutPrefix(string(a), namespacePart)
	namespace, name, _ := strings.Cut(both, namePart)
	return slim.Key{Namespace: namespace, Name: name}
}

// kind is what the entries of service accounts look like, as ztunnel expects them.
var kind = spire.Kind[account]{
	Parent: "/ztunnel", Path: func(a account) string { return string(a) }, Parse: parse,
	Selectors: func(a account) []spire.Selector {
		key := a.key()
		return []spire.Selector{{Type: "k8s", Value: "ns:" + key.Namespace}, {Type: "k8s", Value: "sa:" + key.Name}}
	},
	Lane: func(a account) string { return a.key().Namespace },
	Trigger: func(a account) k8s.Trigger {
		key := a.key()
		return k8s.Trigger{Kind: serviceAccounts.Name(), Namespace: key.Namespace, Name: key.Name}
	},
}
