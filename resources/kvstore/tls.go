// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// fileCredentials are transport credentials whose files are read at every
// handshake, so that a rotated certificate or authority is used at once.
type fileCredentials struct {
	credentials.TransportCredentials // what they were like at first, for what is asked besides
	file                             fileConfig
	failures                         *failures
}

func newCredentials(file fileConfig, f *failures) credentials.TransportCredentials {
	plain := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	return &fileCredentials{plain, file, f}
}

func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.file.tlsConfig()
	if err != nil {
		c.failures.note("secure "+authority, err)
		return nil, nil, err
	}
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil {
		err = fmt.Errorf("TLS handshake with %s: %w", authority, err)
	}
	c.failures.note("secure "+authority, err)
	return conn, info, err
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{c.TransportCredentials.Clone(), c.file, c.failures}
}

// tlsConfig reads the files as they are now.
func (c fileConfig) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.InsecureSkipTLSVerify}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load the etcd client certificate %s: %w", c.CertFile, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	if c.TrustedCAFile != "" {
		pem, err := os.ReadFile(c.TrustedCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authority of etcd: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the authority of etcd, %s, holds no certificate", c.TrustedCAFile)
		}
	}
	return config, nil
}
