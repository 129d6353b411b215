// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

// defaultConfigFile is where the original's chart mounts the client configuration.
const defaultConfigFile = "/var/lib/etcd-config/etcd.config"

// troubleshootCommand checks the connection to the kvstore from this machine.
var troubleshootCommand command.Subcommand = func(*hive.Hive) *cobra.Command {
	var file string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "kvstore", Short: "Check the connection to the kvstore step by step: files, names, TLS, etcd", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return Troubleshoot(ctx, cmd.OutOrStdout(), file, nil)
		},
	}
	cmd.Flags().StringVar(&file, "etcd-config", defaultConfigFile, "etcd client configuration")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "Limit of the whole check")
	cmd.Flags().Bool("without-service-resolution", true, "Accepted for the original's command line: names are resolved by DNS in any case")
	_ = cmd.Flags().MarkHidden("without-service-resolution")
	parent := &cobra.Command{Use: "troubleshoot", Short: "Check connections from this machine step by step"}
	parent.AddCommand(cmd)
	return parent
}

// Troubleshoot checks a client configuration step by step and writes what it finds: the file and its certificates, each
// endpoint, and etcd itself. further checks, which may be nil, follow with a client that only reads. The error says which
// step failed. Names are resolved by DNS alone.
func Troubleshoot(ctx context.Context, w io.Writer, file string, further func(context.Context, io.Writer, Client) error) error {
	config, err := readFile(file)
	if err != nil {
		return printed(w, "client configuration", "", err)
	}
	_ = printed(w, "client configuration", file, nil)
	if config.secure() {
		if err := errors.Join(printCertificates(w, "CA", config.TrustedCAFile), printCertificates(w, "client certificate", config.CertFile)); err != nil {
			return err
		}
	}
	var errs []error
	for _, endpoint := range config.Endpoints {
		errs = append(errs, printed(w, "endpoint "+endpoint, "reachable", config.checkEndpoint(ctx, w, endpoint)))
	}
	return errors.Join(append(errs, checkEtcd(ctx, w, file, further))...)
}

// printed writes the result of a step in a line, and returns its error, which is one line, too.
func printed(w io.Writer, step, result string, err error) error {
	if err != nil {
		text := printable.Line(fmt.Sprintf("%s: %v", step, err))
		fmt.Fprintf(w, "  FAILED  %s\n", text)
		return errors.New(text)
	}
	fmt.Fprintf(w, "  ok      %s\n", printable.Line(step+": "+result))
	return nil
}

// printCertificates writes subject and validity of the certificates of a file.
func printCertificates(w io.Writer, what, file string) error {
	if file == "" {
		return nil
	}
	rest, err := os.ReadFile(file)
	if err != nil {
		return printed(w, what, "", err)
	}
	found := false
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			found, err = true, isValid(certificate)
			err = printed(w, what, describeCertificate(certificate), err)
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return printed(w, what, "", fmt.Errorf("%s has no certificate", file))
	}
	return nil
}

func isValid(c *x509.Certificate) error {
	if now := time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("%s: it is not valid now", describeCertificate(c))
	}
	return nil
}

func describeCertificate(c *x509.Certificate) string {
	return fmt.Sprintf("subject %q, issuer %q, valid from %s to %s", c.Subject, c.Issuer, c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
}

// checkEndpoint resolves an endpoint, connects, and makes the TLS handshake.
func (c fileConfig) checkEndpoint(ctx context.Context, w io.Writer, endpoint string) error {
	_, address, found := strings.Cut(endpoint, "://")
	if !found {
		address = endpoint
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if net.ParseIP(host) == nil {
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err := printed(w, "name "+host, strings.Join(addresses, ", "), err); err != nil {
			return err
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !c.secure() {
		return nil
	}
	config, err := c.tlsConfig()
	if err != nil {
		return err
	}
	config.ServerName = host
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	server := secured.ConnectionState().PeerCertificates[0]
	return printed(w, "certificate of "+address, describeCertificate(server), nil)
}

// newReader is the client of a command, which only reads.
func newReader(name, file string) (*Remote, error) {
	deps := reconcile.Deps{Module: cell.ModuleInfo{ID: name}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter(name)}
	return NewRemote(file, deps, nil)
}

// checkEtcd connects to etcd, reads the heartbeat, and makes the further checks.
func checkEtcd(ctx context.Context, w io.Writer, file string, further func(context.Context, io.Writer, Client) error) error {
	r, err := newReader("troubleshoot", file)
	if err != nil {
		return err
	}
	c := r.client.conn
	defer func() { _ = c.Stop(ctx) }()
	if err := c.open(ctx); err != nil {
		return printed(w, "etcd", "", err)
	}
	heartbeat, err := r.client.Get(ctx, HeartbeatKey)
	result := "it does not exist"
	if heartbeat != nil {
		result = string(heartbeat.Value)
	}
	if err := printed(w, "heartbeat "+HeartbeatKey, result, err); err != nil {
		return err
	}
	for _, e := range c.health.endpointStatuses(ctx) {
		if err := printed(w, "member", e.String(), e.Err); err != nil {
			return err
		}
	}
	if further == nil {
		return nil
	}
	return further(ctx, w, r.client)
}
