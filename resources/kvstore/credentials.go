// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc/credentials"
)

// fileCredentials are transport credentials that read their files at every
// handshake, so that rotated certificates and CAs are used at once.
type fileCredentials struct {
	credentials.TransportCredentials // for all but the handshake
	file                             fileConfig
	dialErrors                       *dialErrors
}

func newCredentials(file fileConfig, f *dialErrors) credentials.TransportCredentials {
	plain := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	return &fileCredentials{plain, file, f}
}

func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.file.tlsConfig()
	if err != nil {
		c.dialErrors.set("secure "+authority, err)
		return nil, nil, err
	}
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil {
		err = fmt.Errorf("TLS handshake with %s: %w", authority, err)
	}
	c.dialErrors.set("secure "+authority, err)
	return conn, info, err
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{c.TransportCredentials.Clone(), c.file, c.dialErrors}
}

// tlsConfig reads the files in their current state.
func (c fileConfig) tlsConfig() (*tls.Config, error) {
	config, err := transport.TLSInfo{
		CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.TrustedCAFile, InsecureSkipVerify: c.InsecureSkipTLSVerify,
	}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load the etcd client certificate %q or the CA %q: %w", c.CertFile, c.TrustedCAFile, err)
	}
	if config.RootCAs != nil && config.RootCAs.Equal(x509.NewCertPool()) {
		return nil, fmt.Errorf("the CA file of etcd, %s, has no certificate", c.TrustedCAFile)
	}
	config.MinVersion = tls.VersionTLS12
	return config, nil
}
