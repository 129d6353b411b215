// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteAdminKubeconfig writes a kubeconfig of the administrator's token.
func (id *Identity) WriteAdminKubeconfig(file, server string) error {
	return id.WriteTokenKubeconfig(file, server, adminUser, id.AdminToken)
}

// ClientConfig is a user's way to an API server, by a new client certificate.
func (id *Identity) ClientConfig(server, user string, groups ...string) (*rest.Config, error) {
	pair, err := id.CA.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{
		CAData: id.CA.Pair().Cert, CertData: pair.Cert, KeyData: pair.Key,
	}}, nil
}

// WriteTokenKubeconfig writes a kubeconfig that authenticates by a token.
func (id *Identity) WriteTokenKubeconfig(file, server, user, token string) error {
	return id.writeKubeconfig(file, server, user, clientcmdapi.AuthInfo{Token: token})
}

// WriteUserKubeconfig writes a kubeconfig that authenticates by a new client
// certificate.
func (id *Identity) WriteUserKubeconfig(file, server, user string, groups ...string) error {
	pair, err := id.CA.Client(user, groups...)
	if err != nil {
		return err
	}
	return id.writeKubeconfig(file, server, user, clientcmdapi.AuthInfo{
		ClientCertificateData: pair.Cert, ClientKeyData: pair.Key,
	})
}

func (id *Identity) writeKubeconfig(file, server, user string, auth clientcmdapi.AuthInfo) error {
	const cluster = "devcluster"
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: server, CertificateAuthorityData: id.CA.Pair().Cert},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: &auth},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	}
	if err := clientcmd.WriteToFile(config, file); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", file, err)
	}
	return nil
}
