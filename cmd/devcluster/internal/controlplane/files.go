// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skep-operator/skep/cmd/devcluster/internal/pki"
)

// Users that the control plane itself is known as.
const (
	adminUser = "devcluster-admin"
	// LoaderUser is an administrator whose requests are not audited.
	LoaderUser = "devcluster-loader"
	// MastersGroup is that of administrators.
	MastersGroup = "system:masters"
)

// Identity holds the certificates, keys and tokens of a cluster.
type Identity struct {
	dir string
	// CA signs servers and users, frontProxyCA the front proxy.
	CA, frontProxyCA *pki.Authority
	// Serving is the certificate of the API server and of proxies in front of it.
	Serving pki.Pair
	// FrontProxy authenticates users to the API server.
	FrontProxy pki.Pair
	// AdminToken is the administrator's bearer token.
	AdminToken string
}

// LoadIdentity reads the identity in dir, or creates it the first time.
func LoadIdentity(dir string) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the certificate directory: %w", err)
	}
	id := &Identity{dir: dir}
	for _, step := range []func() error{id.loadAuthorities, id.issue, id.writeServiceAccountKey, id.writeToken} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return id, nil
}

func (id *Identity) file(name string) string { return filepath.Join(id.dir, name) }

func (id *Identity) loadAuthorities() (err error) {
	if id.CA, err = id.authority("ca"); err != nil {
		return err
	}
	id.frontProxyCA, err = id.authority("front-proxy-ca")
	return err
}

func (id *Identity) authority(name string) (*pki.Authority, error) {
	authority, err := pki.LoadAuthority(id.dir, name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return authority, err
	}
	if authority, err = pki.NewAuthority(name); err != nil {
		return nil, err
	}
	_, _, err = authority.Pair().Write(id.dir, name)
	return authority, err
}

func (id *Identity) issue() (err error) {
	id.Serving, err = id.CA.Server("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	if id.FrontProxy, err = id.frontProxyCA.Client("front-proxy"); err != nil {
		return err
	}
	for name, pair := range map[string]pki.Pair{"apiserver": id.Serving, "front-proxy": id.FrontProxy} {
		if _, _, err := pair.Write(id.dir, name); err != nil {
			return err
		}
	}
	return nil
}

// writeServiceAccountKey creates the key pair that signs service account tokens.
func (id *Identity) writeServiceAccountKey() error {
	if _, err := os.Stat(id.file("sa.key")); err == nil {
		return nil
	}
	return pki.WriteKeyPair(id.dir, "sa")
}

func (id *Identity) writeToken() error {
	id.AdminToken = rand.Text()
	line := fmt.Sprintf("%s,%s,%s,%s\n", id.AdminToken, adminUser, adminUser, MastersGroup)
	if err := os.WriteFile(id.file("tokens.csv"), []byte(line), 0o600); err != nil {
		return fmt.Errorf("write the token file: %w", err)
	}
	return nil
}

// auditPolicy logs every finished request once, and watches also when they
// start, at one level, without those of the loader. Writes of leases and of ConfigMaps are
// logged with what was sent and what was stored: who held the lease, and in which order.
func auditPolicy(level string) string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [` + LoaderUser + `]}
- level: RequestResponse
  verbs: [create, update, patch]
  resources: [{group: coordination.k8s.io, resources: [leases]}, {group: "", resources: [configmaps]}]
- {level: ` + level + `}
`
}
